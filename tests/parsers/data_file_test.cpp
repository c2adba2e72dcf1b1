#include "runtime/files/data_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ScratchFolder;
using testing::write_file;

class DataFile : public ::testing::Test {
 protected:
  std::string problem_of(const std::string& name) const {
    try {
      MappedFile file(scratch_.file(name), "the next step");
    } catch (const DataError& error) {
      hint_ = error.hint();
      return error.what();
    }
    return "no error";
  }

  ScratchFolder scratch_;
  mutable std::string hint_;
};

TEST_F(DataFile, IsMappedAndMoved) {
  write_file(scratch_.file("a"), "bytes");
  MappedFile file(scratch_.file("a"), "");
  const MappedFile moved(std::move(file));
  ASSERT_EQ(moved.bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(moved.bytes()[4]), 's');
  write_file(scratch_.file("empty"), "");
  EXPECT_TRUE(MappedFile(scratch_.file("empty"), "").bytes().empty());
}

TEST_F(DataFile, NamesWhatIsMissingAndWhatLiesThere) {
  write_file(scratch_.file("a"), "");
  EXPECT_THAT(problem_of("b"), AllOf(HasSubstr("no 'b' in"), HasSubstr("which holds a")));
  EXPECT_EQ(hint_, "the next step");
  for (const char* name : {".cache", ".ssh", "cifar-10", "Cifar-100", "thesis", "wikitext-2"}) {
    write_file(scratch_.file(name), "");
  }
  EXPECT_THAT(problem_of("cifar10"), HasSubstr("which holds Cifar-100, cifar-10 and 5 more"));
  EXPECT_THAT(problem_of("x"), HasSubstr("which holds 7 others"));
  EXPECT_THAT(problem_of("folder/deep/b"), HasSubstr("no 'folder' in"));
  std::filesystem::create_symlink("nowhere", scratch_.file("link"));
  EXPECT_THAT(problem_of("link"), HasSubstr("is a link to 'nowhere' and leads nowhere"));
}

TEST_F(DataFile, IsRegular) {
  EXPECT_THAT(problem_of(""), HasSubstr("is not a regular file"));
  ASSERT_EQ(::mkfifo(scratch_.file("pipe").c_str(), 0600), 0);
  EXPECT_THAT(problem_of("pipe"), HasSubstr("is not a regular file"));  // nobody writes to it
}

TEST_F(DataFile, IsReadUnlessItIsAPipeThatNobodyWritesTo) {
  write_file(scratch_.file("a"), "bytes");
  std::string text;
  std::ifstream file = open_unless_pipe(scratch_.file("a"));
  EXPECT_TRUE(std::getline(file, text));
  EXPECT_EQ(text, "bytes");
  EXPECT_FALSE(open_unless_pipe(scratch_.file("b")));
  ASSERT_EQ(::mkfifo(scratch_.file("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(open_unless_pipe(scratch_.file("pipe")));
  // What a shell hands over as <(...).
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ASSERT_EQ(::write(ends[1], "piped", 5), 5);
  ::close(ends[1]);
  std::ifstream handed = open_unless_pipe("/dev/fd/" + std::to_string(ends[0]));
  std::getline(handed, text);
  EXPECT_EQ(text, "piped");
  ::close(ends[0]);
}

TEST_F(DataFile, IsFoundOrNotOrAnError) {
  write_file(scratch_.file("a"), "");
  EXPECT_TRUE(data_file_exists(scratch_.file("a")));
  EXPECT_FALSE(data_file_exists(scratch_.file("b")));
  EXPECT_FALSE(data_file_exists(scratch_.file("a/b")));
  std::filesystem::create_symlink("loop", scratch_.file("loop"));
  EXPECT_THROW(data_file_exists(scratch_.file("loop")), DataError);
}

}  // namespace
}  // namespace shoal
