#include "launch/training_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using testing::ScratchFolder;

/// No file of this process can grow, as on a full disk.
class FullDisk {
 public:
  FullDisk() : former_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &former_);
    const rlimit limit{1, former_.rlim_max};
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

TEST(TrainingLog, WarnsOfAFullDiskAndWritesItsLinesLater) {
  const ScratchFolder scratch;
  const RunFolder folder{scratch.path()};
  const std::unique_ptr<Communicator> world = make_self_communicator();
  Console console(std::tmpfile(), false, 80);
  std::vector<std::string> told;
  Log log("", 0, [&told](const std::string& line) { told.push_back(line); });
  TrainingLog training_log(folder, *world, console, log, 0);
  training_log.evaluation({.loss = 1.0, .samples = 8}, 1);
  {
    const FullDisk full;
    training_log.evaluation({.loss = 1.0, .samples = 8}, 2);
    training_log.evaluation({.loss = 1.0, .samples = 8}, 3);
  }
  ASSERT_EQ(told.size(), 2u);  // one for each file
  EXPECT_THAT(told[0], HasSubstr("metrics.jsonl"));
  EXPECT_THAT(told[0], HasSubstr("training goes on"));
  training_log.evaluation({.loss = 1.0, .samples = 8}, 4);
  for (const char* step : {"\"step\":1,", "\"step\":2,", "\"step\":3,", "\"step\":4,"}) {
    EXPECT_THAT(read_file(folder.file("metrics.jsonl")), HasSubstr(step));
  }
}

}  // namespace
}  // namespace shoal
