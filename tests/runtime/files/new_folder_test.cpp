#include "runtime/files/new_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/base/error.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using testing::read_file;
using testing::ScratchFolder;
using testing::write_file;

class NewFolders : public ::testing::Test {
 protected:
  ScratchFolder scratch_;
  const std::string path_ = scratch_.file("out");

  int64_t count_entries() const {
    const std::filesystem::directory_iterator entries(scratch_.path());
    return std::distance(begin(entries), end(entries));
  }
};

TEST_F(NewFolders, AppearWholeWhenCommitted) {
  NewFolder folder(path_ + "/");
  write_file(folder.working_path() + "/a", "text");
  EXPECT_FALSE(std::filesystem::exists(path_));
  folder.commit();
  EXPECT_EQ(read_file(path_ + "/a"), "text");
  EXPECT_EQ(count_entries(), 1);
}

TEST_F(NewFolders, AreOpenToWhomFoldersOfTheUsualWayAre) {
  std::filesystem::create_directory(scratch_.file("usual"));
  const NewFolder folder(path_);
  EXPECT_EQ(std::filesystem::status(folder.working_path()).permissions(),
            std::filesystem::status(scratch_.file("usual")).permissions());
}

TEST_F(NewFolders, LeaveNothingBehindUnlessCommitted) {
  {
    const NewFolder folder(path_), beside(path_);
    EXPECT_NE(folder.working_path(), beside.working_path());
    write_file(folder.working_path() + "/a", "text");
  }
  EXPECT_EQ(count_entries(), 0);
}

TEST_F(NewFolders, TakeNoOthersPlace) {
  {
    NewFolder folder(path_);
    std::filesystem::create_directory(path_);  // even an empty one
    EXPECT_THROW(folder.commit(), StorageError);
  }
  EXPECT_EQ(count_entries(), 1);
  EXPECT_THROW(NewFolder{path_}, StorageError);
  std::filesystem::create_directory_symlink(scratch_.file("nowhere"), scratch_.file("link"));
  EXPECT_THROW(NewFolder{scratch_.file("link")}, StorageError);
  write_file(scratch_.file("file"), "text");
  EXPECT_THROW(NewFolder{scratch_.file("file/out")}, StorageError);
}

TEST_F(NewFolders, ComeWithTheirParents) {
  NewFolder folder(scratch_.file("a/b/out"));
  folder.commit();
  EXPECT_TRUE(std::filesystem::is_directory(scratch_.file("a/b/out")));
}

TEST_F(NewFolders, AreFilledWholeOrNotAtAll) {
  PosixFileSystem files;
  const auto write_then_fail = [&] {
    write_file(path_ + "/a", "text");
    throw StorageError("full");
  };
  EXPECT_THROW(fill_folder(files, path_, write_then_fail), StorageError);
  EXPECT_FALSE(std::filesystem::exists(path_));
  std::filesystem::create_directory(path_);
  EXPECT_THROW(fill_folder(files, path_, write_then_fail), StorageError);
  EXPECT_TRUE(std::filesystem::is_empty(path_));
  fill_folder(files, path_, [&] { write_file(path_ + "/a", "text"); });
  EXPECT_EQ(read_file(path_ + "/a"), "text");
}

TEST(RequireFreeFolder, TakesAFolderThatIsEmptyOrCanBeMade) {
  const ScratchFolder scratch;
  require_free_folder("--images", scratch.file("new"));
  require_free_folder("--images", scratch.file("new/"));
  require_free_folder("--images", scratch.path());
  require_free_folder("--images", "no_folder_of_this_name");
  require_free_folder("--images", scratch.file("none/at/all"));
  PosixFileSystem files;
  fill_folder(files, scratch.file("none/at/all"), [] {});
  EXPECT_TRUE(std::filesystem::is_empty(scratch.file("none/at/all")));
}

TEST(RequireFreeFolder, RefusesOthersByName) {
  const ScratchFolder scratch;
  const auto error = [&](const std::string& name) -> std::string {
    try {
      require_free_folder("--images", scratch.file(name));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      return error.what();
    }
    return "no error";
  };
  write_file(scratch.file("file"), "text");
  EXPECT_THAT(error("file"), ::testing::HasSubstr("is not an empty folder"));
  const std::string other = "'" + scratch.file("file") + "' is not a folder";
  EXPECT_THAT(error("file/new"), ::testing::HasSubstr(other));
  EXPECT_THAT(error("file/deep/new/"), ::testing::HasSubstr(other));
  EXPECT_THAT(error(""), ::testing::HasSubstr("is not an empty folder"));
}

}  // namespace
}  // namespace shoal
