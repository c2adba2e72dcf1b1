#include "launch/training_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using testing::ScratchFolder;

/// Files of this process cannot grow beyond some bytes, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : former_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &former_);
    const rlimit limit{bytes, former_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &former_);
    std::signal(SIGXFSZ, former_handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit former_{};
  void (*former_handler_)(int);
};

TEST(TrainingLog, LosesLinesButNotTheRunOnAFullDisk) {
  const ScratchFolder scratch;
  const RunFolder folder{scratch.path()};
  const std::unique_ptr<Communicator> world = make_self_communicator();
  Console console(std::tmpfile(), false, 80);
  std::vector<std::string> told;
  Log log("", 0, [&told](const std::string& line) { told.push_back(line); });
  TrainingLog training_log(folder, *world, console, log, 0);
  training_log.evaluation({.loss = 1.0, .samples = 8}, 1);
  const auto size = std::filesystem::file_size(folder.file("metrics.jsonl"));
  {
    const FullDisk full(size);
    training_log.evaluation({.loss = 1.0, .samples = 8}, 2);
    training_log.evaluation({.loss = 1.0, .samples = 8}, 3);
  }
  ASSERT_FALSE(told.empty());
  EXPECT_THAT(told[0], HasSubstr("metrics.jsonl"));
  EXPECT_THAT(told[0], HasSubstr("training goes on"));
  training_log.evaluation({.loss = 1.0, .samples = 8}, 4);
  EXPECT_THAT(read_file(folder.file("metrics.jsonl")), HasSubstr("\"step\":4"));
}

}  // namespace
}  // namespace shoal
