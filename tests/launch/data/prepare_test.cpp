#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>

#include "launch/data/data.h"
#include "runtime/data/shards/tar.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

TEST(UnpackArchive, WritesTheFilesOfTheArchiveThatHasTheChecksum) {
  const testing::ScratchFolder scratch;
  std::string plain;
  const auto add = [&plain](const std::string& name, const std::string& bytes) {
    const int64_t size = std::ssize(bytes);
    plain += tar_header(name, size) + bytes + tar_padding(size);
  };
  add("folder/one.bin", std::string(100000, 'x'));
  add("folder/two.txt", "text");
  plain += tar_end();
  const std::string path = scratch.file("a.tar.gz");
  const gzFile packed = gzopen(path.c_str(), "wb");
  gzwrite(packed, plain.data(), static_cast<unsigned>(plain.size()));
  gzclose(packed);
  std::filesystem::create_directory(scratch.file("out"));
  try {
    unpack_archive(path, std::string(32, '0'), scratch.file("out"));
    ADD_FAILURE() << "another archive is unpacked";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("expected 00000000000000000000000000000000"));
    const std::string what = error.what();
    const std::string md5 = what.substr(what.find("its MD5 is ") + 11, 32);
    EXPECT_TRUE(std::filesystem::is_empty(scratch.file("out")));
    unpack_archive(path, md5, scratch.file("out"));
  }
  EXPECT_EQ(testing::read_file(scratch.file("out/one.bin")), std::string(100000, 'x'));
  EXPECT_EQ(testing::read_file(scratch.file("out/two.txt")), "text");
}

}  // namespace
}  // namespace shoal
