#include "runtime/data/shards/tar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "tests/parsers/tar_fixture.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::octal;
using testing::tar_member;
using testing::tar_of;
using testing::tar_trailer;
using testing::TarHeader;

std::vector<TarMember> listed(const std::string& archive) {
  return list_tar(std::as_bytes(std::span(archive)), "a.tar");
}

std::string tar_refusal(const std::string& archive) {
  try {
    listed(archive);
  } catch (const DataError& error) {
    EXPECT_FALSE(error.hint().empty());
    return error.what();
  }
  return "taken";
}

/// An archive of one member with this header and no bytes.
std::string refusal_of_header(const TarHeader& header) {
  return tar_refusal(header.block() + tar_trailer());
}

std::string pax(const std::string& records) {
  return tar_member({.name = "PaxHeader", .type = 'x'}, records);
}

std::string long_name(const std::string& name) {
  return tar_member({.name = "././@LongLink", .type = 'L'}, name + std::string(1, '\0'));
}

TEST(TarReader, ListsFilesWithTheirPlaces) {
  const std::string archive = tar_of({{"a/1.jpg", std::string(700, 'x')}, {"b", ""}, {"c", "yz"}});
  EXPECT_THAT(listed(archive), ElementsAre(TarMember{"a/1.jpg", 512, 700}, TarMember{"b", 2048, 0},
                                           TarMember{"c", 2560, 2}));
  EXPECT_EQ(archive.substr(2560, 2), "yz");
  EXPECT_EQ(listed(archive + std::string(8704, '\0')).size(), 3u) << "filled up to 10 KiB";
}

TEST(TarReader, KnowsTheFormsOfNames) {
  const std::string file = tar_member({.name = "short"}, "x");
  const auto name_of = [](const std::string& archive) { return listed(archive).front().name; };
  EXPECT_EQ(name_of(tar_member({.name = "b.jpg", .prefix = "a"}, "") + tar_trailer()), "a/b.jpg");
  const std::string full(100, 'n');
  EXPECT_EQ(name_of(tar_member({.name = full}, "") + tar_trailer()), full);
  const std::string gnu("ustar  \0", 8);
  EXPECT_EQ(name_of(tar_member({.name = "b", .magic = gnu, .prefix = "a"}, "") + tar_trailer()),
            "b")
      << "GNU keeps times there";
  EXPECT_EQ(name_of(tar_member({.name = "b", .type = '\0', .magic = ""}, "") + tar_trailer()), "b");
  EXPECT_EQ(name_of(pax("17 path=pax/name\n") + file + tar_trailer()), "pax/name");
  EXPECT_EQ(name_of(long_name(full + full) + file + tar_trailer()), full + full);
}

TEST(TarReader, AppliesExtendedHeadersToTheNextMemberAlone) {
  const std::string big = TarHeader{.name = "big"}.block() + std::string(512, 'b');
  const std::string archive = tar_member({.name = "global", .type = 'g'}, "19 path=of/nobody\n") +
                              pax("12 size=512\n9 path=p\n") + big +
                              tar_member({.name = "next"}, "n") + tar_trailer();
  EXPECT_THAT(listed(archive), ElementsAre(TarMember{"p", 2560, 512}, TarMember{"next", 3584, 1}));
}

TEST(TarReader, PassesOverFolders) {
  const std::string archive = TarHeader{.name = "a", .type = '5'}.block() +
                              TarHeader{.name = "b/"}.block() + tar_of({{"b/c", "x"}});
  EXPECT_THAT(listed(archive), ElementsAre(TarMember{"b/c", 1536, 1}));
}

TEST(TarReader, KnowsTheFormsOfSizes) {
  const std::string bytes = std::string(512, 'x') + tar_trailer();
  const auto size_of = [&](const std::string& field) {
    return listed(TarHeader{.name = "a", .size = field}.block() + bytes).front().size;
  };
  EXPECT_EQ(size_of("00000000007"), 7);
  EXPECT_EQ(size_of("      7 "), 7);
  EXPECT_EQ(size_of("000000000777"), 511) << "no room for an end";
  EXPECT_EQ(size_of("\x80" + std::string(9, '\0') + "\x01\xFF"), 511);
}

TEST(TarReader, RefusesNamesThatLeadElsewhere) {
  for (const char* name : {"/etc/a.jpg", "../a.jpg", "a/../../b.jpg", "a/..", ".."}) {
    EXPECT_THAT(tar_refusal(tar_of({{"good", "x"}, {name, "x"}})),
                AllOf(HasSubstr("a.tar: byte 1024: member '" + std::string(name) + "' has a"),
                      ::testing::AnyOf(HasSubstr("an absolute name"),
                                       HasSubstr("a name that leads out of its folder"))))
        << name;
  }
  EXPECT_EQ(tar_refusal(tar_of({{"a..b/..c", "x"}})), "taken");
  EXPECT_THAT(tar_refusal(tar_of({{"", "x"}})), HasSubstr("has no name"));
  EXPECT_THAT(tar_refusal(pax(std::string("12 path=a\0b\n", 12)) + tar_of({{"c", ""}})),
              HasSubstr("has a zero byte in its name"));
  EXPECT_THAT(refusal_of_header({.name = "../folder", .type = '5'}), HasSubstr("leads out"));
}

TEST(TarReader, RefusesNamesOfMoreThanFourKibibytes) {
  const std::string most(4096, 'n');
  EXPECT_EQ(tar_refusal(long_name(most) + tar_of({{"a", ""}})), "taken");
  EXPECT_THAT(tar_refusal(long_name(most + "n") + tar_of({{"a", ""}})),
              HasSubstr("has a name of more than 4096 bytes"));
  EXPECT_THAT(tar_refusal(pax("4108 path=" + most + "n\n") + tar_of({{"a", ""}})),
              HasSubstr("has a name of more than 4096 bytes"));
}

TEST(TarReader, RefusesWhatIsNoFile) {
  const auto refusal = [](char type) { return refusal_of_header({.name = "a", .type = type}); };
  EXPECT_THAT(refusal('1'), HasSubstr("a.tar: byte 0: member 'a' is a hard link"));
  EXPECT_THAT(refusal('2'), HasSubstr("is a symbolic link"));
  EXPECT_THAT(refusal('3'), HasSubstr("is a device"));
  EXPECT_THAT(refusal('4'), HasSubstr("is a device"));
  EXPECT_THAT(refusal('6'), HasSubstr("is a FIFO"));
  EXPECT_THAT(refusal('K'), HasSubstr("long target of a link"));
  EXPECT_THAT(refusal('S'), HasSubstr("is a sparse file"));
  EXPECT_THAT(refusal('M'), HasSubstr("is of an unknown type"));
  EXPECT_THAT(tar_refusal(pax("22 GNU.sparse.major=1\n") + tar_of({{"a", ""}})),
              HasSubstr("of a sparse file"));
}

TEST(TarReader, RefusesSizesThatAreNone) {
  const auto refusal = [](const std::string& size) {
    return refusal_of_header({.name = "a", .size = size});
  };
  for (const std::string& size :
       {std::string(""), std::string("8"), std::string("1 7"), std::string("-1"),
        std::string(12, '\xFF'), "\x80\xFF" + std::string(10, '\0')}) {
    EXPECT_THAT(refusal(size), HasSubstr("member 'a' has a size field that is not a number"))
        << size;
  }
  EXPECT_THAT(refusal("77777777777"),
              HasSubstr("has 8589934591 bytes, and the file ends 1024 bytes behind its header"));
  EXPECT_THAT(refusal("\x80" + std::string(3, '\0') + "\x7F" + std::string(7, '\xFF')),
              HasSubstr("has 9223372036854775807 bytes, and the file ends"));
  for (const char* record : {"10 size=x\n", "11 size=-1\n", "28 size=9223372036854775808\n"}) {
    EXPECT_THAT(tar_refusal(pax(record) + tar_of({{"a", ""}})), HasSubstr("size is not a number"))
        << record;
  }
}

TEST(TarReader, RefusesExtendedHeadersThatAreNone) {
  for (const char* records : {"path=a\n", "9 path=a", "8 path=a\n", "0 \n", "2 ",
                              "99999999999999999999 path=a\n", "9 path=a\nx", "9path=ab\n"}) {
    EXPECT_THAT(tar_refusal(pax(records) + tar_of({{"a", ""}})), HasSubstr("a damaged record"))
        << records;
  }
  EXPECT_THAT(tar_refusal(pax("7 path\n") + tar_of({{"a", ""}})), HasSubstr("without '='"));
  EXPECT_THAT(tar_refusal(tar_member({.name = "a"}, "") + pax("9 path=b\n") + tar_trailer()),
              HasSubstr("an extended header without a member"));
}

TEST(TarReader, RefusesAWrongChecksum) {
  std::string archive = tar_of({{"a", "x"}, {"b", "y"}});
  archive[1024] ^= 1;
  EXPECT_THAT(tar_refusal(archive), HasSubstr("a.tar: byte 1024: no header of a tar archive"));
  EXPECT_THAT(tar_refusal(std::string(2048, 'x')), HasSubstr("byte 0: no header"));
}

TEST(TarReader, RefusesAnArchiveThatIsCutShortAtAnyByte) {
  const std::string archive = pax("9 path=p\n") + tar_of({{"a", std::string(600, 'x')}});
  ASSERT_EQ(tar_refusal(archive), "taken");
  for (size_t size = 0; size < archive.size(); ++size) {
    EXPECT_THAT(tar_refusal(archive.substr(0, size)),
                ::testing::AnyOf(HasSubstr("cut short"), HasSubstr("and the file ends")))
        << size;
  }
}

TEST(TarReader, RefusesAnArchiveWithoutFilesAndOneBehindAnother) {
  EXPECT_THAT(tar_refusal(""), HasSubstr("cut short: the file has 0 bytes"));
  EXPECT_THAT(tar_refusal(tar_trailer()), HasSubstr("the archive holds no files"));
  EXPECT_THAT(refusal_of_header({.name = "a", .type = '5'}), HasSubstr("holds no files"));
  const std::string archive = tar_of({{"a", "x"}});
  EXPECT_THAT(tar_refusal(archive + archive),
              HasSubstr("a.tar: byte 2048: bytes behind the end of the archive"));
  EXPECT_THAT(tar_refusal(archive.substr(0, 1024) + std::string(512, '\0') + archive),
              HasSubstr("a single block of zeros"));
}

TEST(TarReader, ShowsNoControlBytesOfNames) {
  EXPECT_THAT(refusal_of_header({.name = "\x1B[31m", .type = '2'}), HasSubstr("member '?[31m' is"));
  EXPECT_EQ(quoted_excerpt(std::string(81, 'a')), "'" + std::string(80, 'a') + "...'");
}

TEST(TarWriter, WritesWhatTheReaderLists) {
  const std::string deep = std::string(90, 'a') + "/" + std::string(90, 'b');
  const std::string deeper = std::string(156, 'a') + "/" + std::string(3, 'b');
  const std::string wide(101, 'w');
  std::string archive;
  std::vector<std::string> names{"a.jpg", std::string(100, 'n'), deep, deeper,
                                 wide,    std::string(4096, 'l')};
  for (const std::string& name : names) archive += tar_header(name, 3) + "xyz" + tar_padding(3);
  archive += tar_end();
  const std::vector<TarMember> members = listed(archive);
  ASSERT_EQ(members.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(members[i].name, names[i]);
    EXPECT_EQ(archive.substr(static_cast<size_t>(members[i].offset), 3), "xyz");
  }
  EXPECT_EQ(tar_header("a", 0).size(), 512u);
  EXPECT_EQ(tar_header(deep, 0).size(), 512u) << "ustar has room";
  EXPECT_EQ(tar_padding(0) + tar_padding(512), "");
}

TEST(TarWriter, WritesSizesThatOctalHasNoRoomFor) {
  const int64_t size = (int64_t{1} << 33) + 5;
  EXPECT_THAT(tar_refusal(tar_header("a", size) + tar_end()),
              HasSubstr("member 'a' has 8589934597 bytes"));
  EXPECT_THAT(tar_refusal(tar_header("a", size - 6) + tar_end()),
              HasSubstr("member 'a' has 8589934591 bytes"));
}

TEST(TarWriter, NamesNoTimeAndNoOwner) {
  const std::string header = tar_header("a", 8);
  EXPECT_EQ(header.substr(100, 24), std::string("0000644\0"
                                                "0000000\0"
                                                "0000000\0",
                                                24));
  EXPECT_EQ(header.substr(124, 24), std::string("00000000010\0"
                                                "00000000000\0",
                                                24));
  EXPECT_EQ(header.substr(257, 8), std::string("ustar\0"
                                               "00",
                                               8));
  EXPECT_EQ(header.substr(265, 247), std::string(247, '\0'));
}

}  // namespace
}  // namespace shoal
