#include "runtime/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "runtime/base/error.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string read_file(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Log, EveryRankWritesItsFileAndOnlyRankZeroSpeaks) {
  const fs::path folder = fs::temp_directory_path() / ("shoal_log_" + std::to_string(getpid()));
  fs::create_directories(folder);
  std::vector<std::string> spoken;
  for (int64_t rank = 0; rank < 2; ++rank) {
    Log log((folder / std::to_string(rank)).string(), rank,
            [&](const std::string& line) { spoken.push_back(line); });
    log.info("saved {} braces are only text");
    log.detail("quiet");
    log.warn("slow");
  }
  EXPECT_THAT(spoken, ElementsAre("saved {} braces are only text", "warning: slow"));
  EXPECT_THAT(read_file(folder / "1"), HasSubstr("[rank 1] info: saved {} braces"));
  EXPECT_THAT(read_file(folder / "1"), HasSubstr("quiet"));
  fs::remove_all(folder);
}

TEST(Log, TellsOnceThatItsFileCannotBeWritten) {
  std::vector<std::string> spoken;
  const auto echo = [&](const std::string& line) { spoken.push_back(line); };
  Log log("/dev/full", 1, echo);
  log.detail("lost");
  log.detail("lost too");
  ASSERT_EQ(spoken.size(), 1u);
  EXPECT_THAT(spoken[0], HasSubstr("warning: the log '/dev/full' cannot be written"));
}

TEST(Log, AFileThatCannotBeOpenedIsAStorageErrorWithItsName) {
  try {
    Log log("/proc/no/such/file", 0, nullptr);
    FAIL() << "opened a file that cannot exist";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/proc/no/such/file"));
  }
}

}  // namespace
}  // namespace shoal
