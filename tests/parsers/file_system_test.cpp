#include "runtime/files/file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/failing_file_system.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using testing::FailingFileSystem;
using ::testing::HasSubstr;
using testing::read_file;
using testing::ScratchFolder;
using testing::write_file;

template <typename Call>
std::string failure_of(const Call& call) {
  try {
    call();
  } catch (const StorageError& error) {
    return error.what();
  }
  return "";
}

TEST(FileSystem, ContinuesShortWrites) {
  const ScratchFolder scratch;
  FailingFileSystem files;
  files.longest_write = 3;
  OutputFile file(files, scratch.file("a"), FileSystem::Mode::kCreate);
  file.write("hello, world");
  file.close();
  EXPECT_EQ(read_file(scratch.file("a")), "hello, world");
}

TEST(FileSystem, RepeatsInterruptedCalls) {
  const ScratchFolder scratch;
  for (int64_t at = 0; at < 3; ++at) {  // open, write, sync
    FailingFileSystem files;
    files.fail_at = at;
    files.error = EINTR;
    OutputFile file(files, scratch.file("a"), FileSystem::Mode::kReplace);
    file.write("text");
    file.sync();
    file.close();
    EXPECT_EQ(read_file(scratch.file("a")), "text");
  }
}

TEST(FileSystem, NamesPathReasonAndBytesWhenTheDiskIsFull) {
  const ScratchFolder scratch;
  FailingFileSystem files;
  files.fail_at = 1;
  files.error = ENOSPC;
  OutputFile file(files, scratch.file("a"), FileSystem::Mode::kCreate);
  EXPECT_THAT(failure_of([&] { file.write("12345"); }),
              AllOf(HasSubstr(scratch.file("a")), HasSubstr("No space left on device"),
                    HasSubstr("5 bytes needed"), HasSubstr(" free)")));
}

TEST(FileSystem, GivesUpOnADeviceThatTakesNothing) {
  const ScratchFolder scratch;
  FailingFileSystem files;
  files.longest_write = 0;
  OutputFile file(files, scratch.file("a"), FileSystem::Mode::kCreate);
  EXPECT_NE(failure_of([&] { file.write("x"); }), "");
}

TEST(FileSystem, DoesNotWaitForAPipesReader) {
  const ScratchFolder scratch;
  ASSERT_EQ(::mkfifo(scratch.file("pipe").c_str(), 0600), 0);
  PosixFileSystem files;
  EXPECT_THAT(
      failure_of([&] { OutputFile(files, scratch.file("pipe"), FileSystem::Mode::kAppend); }),
      HasSubstr("pipe"));
}

TEST(FileSystem, RefusesToCreateWhatExistsAndToFollowLinks) {
  const ScratchFolder scratch;
  PosixFileSystem files;
  write_file(scratch.file("a"), "old");
  std::filesystem::create_symlink(scratch.file("a"), scratch.file("link"));
  EXPECT_THAT(failure_of([&] { OutputFile(files, scratch.file("a"), FileSystem::Mode::kCreate); }),
              HasSubstr("exists"));
  EXPECT_NE(
      failure_of([&] { OutputFile(files, scratch.file("link"), FileSystem::Mode::kReplace); }), "");
  EXPECT_EQ(read_file(scratch.file("a")), "old");
}

int64_t num_entries(const std::string& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

TEST(FileSystem, ReplacesAFileWholeOrNotAtAll) {
  const ScratchFolder scratch;
  FailingFileSystem probe;
  write_file(scratch.file("a"), "old");
  replace_file(probe, scratch.file("a"), "new");
  EXPECT_EQ(read_file(scratch.file("a")), "new");
  for (int64_t at = 0; at < probe.calls(); ++at) {
    write_file(scratch.file("a"), "old");
    FailingFileSystem files;
    files.fail_at = at;
    const std::string error = failure_of([&] { replace_file(files, scratch.file("a"), "new"); });
    const std::string text = read_file(scratch.file("a"));
    EXPECT_TRUE(text == "old" || text == "new") << at;
    EXPECT_EQ(num_entries(scratch.path()), 1) << at;
    // Only closing the folder's descriptor may fail unseen.
    EXPECT_EQ(error.empty(), at == probe.calls() - 1) << probe.log()[static_cast<size_t>(at)];
  }
}

TEST(FileSystem, ReplacesAFileThatOthersReplaceAtOnce) {
  const ScratchFolder scratch;
  std::vector<std::string> errors(8);
  std::vector<std::thread> writers;
  for (std::string& error : errors) {
    writers.emplace_back([&] {
      PosixFileSystem files;
      for (int i = 0; i < 20 && error.empty(); ++i) {
        error = failure_of([&] { replace_file(files, scratch.file("a"), "new"); });
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_THAT(errors, ::testing::Each(""));
  EXPECT_EQ(read_file(scratch.file("a")), "new");
  EXPECT_EQ(num_entries(scratch.path()), 1);
}

TEST(FileSystem, AsksForFreeSpaceBeforeWriting) {
  const ScratchFolder scratch;
  FailingFileSystem files;
  files.free_bytes_answer = 99;
  require_free_bytes(files, scratch.path(), 99, "checkpoint");
  EXPECT_THAT(failure_of([&] { require_free_bytes(files, scratch.path(), 100, "checkpoint"); }),
              AllOf(HasSubstr("100 bytes needed, 99 free"), HasSubstr(scratch.path())));
}

TEST(FileSystem, KnowsTheFolderOfAPath) {
  EXPECT_EQ(parent_path("a/b/c"), "a/b");
  EXPECT_EQ(parent_path("c"), ".");
  EXPECT_EQ(parent_path("/c"), "/");
}

}  // namespace
}  // namespace shoal
