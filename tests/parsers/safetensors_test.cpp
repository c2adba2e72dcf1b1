#include "runtime/files/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::ScratchFolder;
using testing::write_file;

std::string header_error(const std::string& json, uint64_t data_bytes) {
  try {
    parse_safetensors_header(json, 8 + json.size() + data_bytes, "x.safetensors");
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

std::string file_error(const std::string& bytes) {
  const ScratchFolder scratch;
  write_file(scratch.file("x"), bytes);
  try {
    read_safetensors_header(UntrustedFolder(scratch.path()).open("x"));
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

constexpr char kGood[] =
    R"({"__metadata__":{"step":"3"},"b":{"dtype":"F32","shape":[2],"data_offsets":[2,10]},)"
    R"("a":{"dtype":"BF16","shape":[1,1],"data_offsets":[0,2]},)"
    R"("none":{"dtype":"U8","shape":[4,0],"data_offsets":[10,10]}}  )";

TEST(Safetensors, ReadsAHeaderInAnyOrder) {
  const SafetensorsHeader header = parse_safetensors_header(kGood, 8 + sizeof kGood - 1 + 10, "x");
  ASSERT_EQ(header.entries.size(), 3u);
  EXPECT_EQ(header.entries[0].name, "a");
  EXPECT_EQ(header.entries[0].dtype, Dtype::kBF16);
  EXPECT_EQ(header.entries[1].shape, std::vector<int64_t>{2});
  EXPECT_EQ(header.entries[2].name, "none");
  EXPECT_EQ(header.metadata.at("step"), "3");
  EXPECT_EQ(header.data_begin, 8 + sizeof kGood - 1);
}

TEST(Safetensors, ReadsWhatItWrites) {
  std::vector<SafetensorsEntry> entries{{"w", Dtype::kF64, {2, 3}, 0, 0},
                                        {"odd \"name\"\n\x01é", Dtype::kF32, {1}, 0, 0},
                                        {"s", Dtype::kF16, {}, 0, 0},
                                        {"e", Dtype::kBool, {0}, 0, 0}};
  const std::string text = emit_safetensors_header(entries, {{"k", "v\\"}});
  EXPECT_EQ(text.size() % 8, 0u);
  const SafetensorsHeader header =
      parse_safetensors_header(text.substr(8), text.size() + entries.back().end, "x");
  EXPECT_EQ(header.data_begin, text.size());
  EXPECT_EQ(header.metadata.at("k"), "v\\");
  ASSERT_EQ(header.entries.size(), entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(header.entries[i].name, entries[i].name);
    EXPECT_EQ(header.entries[i].dtype, entries[i].dtype);
    EXPECT_EQ(header.entries[i].shape, entries[i].shape);
    EXPECT_EQ(header.entries[i].begin, entries[i].begin);
    EXPECT_EQ(header.entries[i].end, entries[i].end);
  }
}

std::string one(const std::string& fields) { return "{\"a\":{" + fields + "}}"; }

TEST(Safetensors, RefusesEveryHostileHeader) {
  const std::string u8 = R"("dtype":"U8","shape":[2],"data_offsets":[0,2])";
  ASSERT_EQ(header_error(one(u8), 2), "");
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "begin with '{'"},
      {"[]", "begin with '{'"},
      {"\xEF\xBB\xBF{}", "begin with '{'"},
      {"{", "not JSON"},
      {"{}{}", "not JSON"},
      {std::string("{}\0x", 4), "zero byte"},
      {"{\"a\xff\":1}", "not JSON"},
      {"{\"a\":" + deep + "}", "in the wrong place"},
      {"{\"a\":1}", "in the wrong place"},
      {"{\"a\":null}", "in the wrong place"},
      {one(R"("dtype":)" + deep), "in the wrong place"},
      {one(u8 + R"(,"dtype":"U8")"), "appears twice"},
      {one(u8 + R"(,"shape":[2])"), "appears twice"},
      {one(u8 + R"(,"data_offsets":[0,2])"), "appears twice"},
      {one(u8 + R"(,"extra":1)"), "unknown key"},
      {one(R"("dtype":"U8","shape":[2])"), "lacks"},
      {one(R"("dtype":"F8","shape":[2],"data_offsets":[0,2])"), "dtype 'F8'"},
      {one(R"("dtype":1,"shape":[2],"data_offsets":[0,2])"), "in the wrong place"},
      {one(R"("dtype":"U8","shape":2,"data_offsets":[0,2])"), "in the wrong place"},
      {one(R"("dtype":"U8","shape":[[2]],"data_offsets":[0,2])"), "in the wrong place"},
      {one(R"("dtype":"U8","shape":["2"],"data_offsets":[0,2])"), "in the wrong place"},
      {one(R"("dtype":"U8","shape":[2.0],"data_offsets":[0,2])"), "not an integer"},
      {one(R"("dtype":"U8","shape":[-2],"data_offsets":[0,2])"), "negative"},
      {one(R"("dtype":"U8","shape":[true],"data_offsets":[0,2])"), "in the wrong place"},
      {one(R"("dtype":"U8","shape":[2],"data_offsets":[0])"), "not two numbers"},
      {one(R"("dtype":"U8","shape":[2],"data_offsets":[0,1,2])"), "in the wrong place"},
      {one(R"("dtype":"U8","shape":[2],"data_offsets":[0,3])"), "does not fill"},
      {one(R"("dtype":"U8","shape":[2],"data_offsets":[2,0])"), "does not fill"},
      {one(R"("dtype":"U8","shape":[2],"data_offsets":[1,3])"), "begins at byte 1"},
      {one(R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,2])"), "below 2^63"},
      {one(R"("dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,2])"),
       "not an integer"},
      {one(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])"), "does not fill"},
      {one(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])"), "not fill"},
      {one(R"("dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0])"), "not fill"},
      {one(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,2])"), "at most 8"},
      {"{" + std::string(R"("a":{)") + u8 + R"(},"a":{)" + u8 + "}}", "begins at byte 0"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[2],)"
       R"("data_offsets":[0,2]}})",
       "'a' appears twice"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[0],)"
       R"("data_offsets":[2,2]}})",
       "begins at byte 2"},
      {R"({"__metadata__":{"a":1}})", "in the wrong place"},
      {R"({"__metadata__":{"a":"1","a":"1"}})", "appears twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", "appears twice"},
      {R"({"__metadata__":[]})", "in the wrong place"},
      {R"({"__metadata__":{"a":{}}})", "in the wrong place"},
      {"{}", "cover 0 bytes"}};
  for (const auto& [json, text] : cases) {
    EXPECT_THAT(header_error(json, 2), HasSubstr(text)) << json.substr(0, 120);
  }
}

TEST(Safetensors, RefusesEveryTruncation) {
  const std::string good(kGood);
  for (size_t length = 0; length < good.size() - 2; ++length) {
    EXPECT_NE(header_error(good.substr(0, length), 10), "") << length;
  }
}

TEST(Safetensors, SaysHowMuchOfTheDataIsMissing) {
  EXPECT_NE(header_error(std::string(kGood), 9).find("cut off: 9 of 10 bytes"), std::string::npos);
}

/// Everything that a header tells, as text.
std::string told_by(const std::string& json) {
  SafetensorsHeader header = parse_safetensors_header(json, 8 + json.size() + 10, "x");
  return emit_safetensors_header(header.entries, header.metadata);
}

TEST(Safetensors, NoticesEveryFlippedBit) {
  const std::string good(kGood), told = told_by(good);
  int64_t refused = 0;
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    if (header_error(bad, 10).empty()) {
      EXPECT_NE(told_by(bad), told) << "bit " << bit;  // another header, of other names or shapes
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, static_cast<int64_t>(good.size()) * 4);
}

TEST(Safetensors, RefusesFilesOfOtherKinds) {
  EXPECT_THAT(file_error(std::string("PK\x03\x04", 4) + std::string(100, 'x')),
              HasSubstr("pickle checkpoints are not loaded"));
  EXPECT_THAT(file_error("\x80\x02}q\x01." + std::string(100, 'x')),
              HasSubstr("pickle checkpoints are not loaded"));
  EXPECT_THAT(file_error("short"), HasSubstr("too few"));
  EXPECT_THAT(file_error(""), HasSubstr("too few"));
  EXPECT_THAT(file_error(std::string(16, '\x7f')), HasSubstr("at most 16777216"));
  EXPECT_THAT(file_error(std::string("\x09\0\0\0\0\0\0\0{}", 10)), HasSubstr("past the end"));
}

TEST(Safetensors, TakesNoHeaderForAPickle) {
  const std::string json = "{}" + std::string(0x0280 - 2, ' ');
  EXPECT_EQ(file_error(std::string("\x80\x02\0\0\0\0\0\0", 8) + json), "");
}

TEST(Safetensors, RefusesAHeaderAboveItsLimitBeforeReadingIt) {
  std::string bytes("\x01\x00\x00\x01\0\0\0\0", 8);
  bytes += "{" + std::string(kLargestSafetensorsHeader, ' ') + "}";
  EXPECT_THAT(file_error(bytes), HasSubstr("claim a header of 16777217 bytes"));
}

TEST(UntrustedFolder, RefusesLinksPipesFoldersAndPaths) {
  const ScratchFolder scratch;
  write_file(scratch.file("plain"), "x");
  std::filesystem::create_symlink("plain", scratch.file("link"));
  std::filesystem::create_directory(scratch.file("folder"));
  ASSERT_EQ(::system(("mkfifo " + scratch.file("pipe")).c_str()), 0);
  const UntrustedFolder folder(scratch.path());
  EXPECT_EQ(folder.open("plain").read(0, 1), "x");
  for (const std::string name : {"link", "folder", "pipe", "none", "../plain", ".", "..", ""}) {
    EXPECT_THROW(folder.open(name), CheckpointError) << name;
  }
  EXPECT_THROW(folder.open("plain").read(0, 2), CheckpointError);
  std::filesystem::create_symlink("gone", scratch.file("dangling"));
  try {
    UntrustedFolder(scratch.file("dangling"));
    ADD_FAILURE() << "opened a link that leads nowhere";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("dangling' is a link to 'gone' and leads nowhere"));
  }
  EXPECT_THROW(folder.open("plain").read(~uint64_t{0}, 2), CheckpointError);
}

}  // namespace
}  // namespace shoal
