#include "launch/job/rank_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "runtime/base/error.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Recipe recipe_of(const std::string& device) {
  return testing::equality_recipe({"run.device=" + device});
}

TEST(RankDevices, OneRankOnTheCpuHasNothingToSay) {
  const auto world = make_self_communicator();
  const RankDevices devices = bind_ranks(recipe_of("cpu"), {}, *world);
  EXPECT_TRUE(devices.own.device.is_cpu());
  EXPECT_THAT(devices.log_lines, IsEmpty());
  EXPECT_EQ(devices.gpu_world, nullptr);
}

TEST(RankDevicesRanks, OnCpusRankZeroHasATableOfRanksAndNoneHasNccl) {
  testing::run_ranks(3, [](Communicator& world) {
    LaunchInfo launch;
    launch.local_rank = world.rank();
    const RankDevices devices = bind_ranks(recipe_of("cpu"), launch, world);
    ASSERT_THAT(devices.log_lines, SizeIs(world.rank() == 0 ? 4 : 0));
    if (world.rank() == 0) {
      EXPECT_THAT(devices.log_lines[3], HasSubstr("cpu"));
    }
    EXPECT_EQ(devices.gpu_world, nullptr);
  });
}

TEST(RankDevices, AGpuThatIsNotThereIsAnError) {
  if (std::filesystem::exists("/dev/nvidia0")) GTEST_SKIP() << "there is one: see TrainingGpu";
  const auto world = make_self_communicator();
  try {
    bind_ranks(recipe_of("cuda"), {}, *world);
    ADD_FAILURE() << "cuda without a GPU was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kTopology);
    EXPECT_THAT(error.what(), HasSubstr("device: cuda: "));
  }
  EXPECT_TRUE(bind_ranks(recipe_of("auto"), {}, *world).own.device.is_cpu());
}

}  // namespace
}  // namespace shoal
