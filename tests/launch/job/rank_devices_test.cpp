#include "launch/job/rank_devices.h"

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>

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

TEST(RankDevices, ProductsUseTf32WhereTheRecipeAsksForIt) {
  const auto uses_tf32 = [] {
    return std::pair(at::globalContext().allowTF32CuBLAS(), at::globalContext().allowTF32CuDNN());
  };
  set_gpu_precision(/*tf32=*/true);
  EXPECT_EQ(uses_tf32(), std::pair(true, true));
  set_gpu_precision(/*tf32=*/false);
  EXPECT_EQ(uses_tf32(), std::pair(false, false));
}

TEST(RankDevices, NcclWaitsForAPeerAsLongAsTheRecipeSays) {
  using std::chrono::milliseconds;
  const auto limits_of = [](const std::string& text) {
    const Recipe recipe = testing::equality_recipe({"run.hang_timeout=" + text});
    const NcclLimits limits = nccl_limits(recipe.run.hang_timeout);
    EXPECT_EQ(limits.launch, limits.transfer);
    EXPECT_EQ(limits.launch, limits.barrier);
    EXPECT_EQ(limits.init, NcclLimits{}.init);
    EXPECT_EQ(limits.finalize, NcclLimits{}.finalize);
    return limits.transfer;
  };
  EXPECT_EQ(nccl_limits(Recipe{}.run.hang_timeout).transfer, std::chrono::minutes(30));
  EXPECT_EQ(limits_of("2h"), std::chrono::hours(2));
  EXPECT_EQ(limits_of("0.0001s"), milliseconds(1));
  EXPECT_EQ(limits_of("never"), kNever);
  const milliseconds longest = limits_of("900000000h");
  EXPECT_GT(longest, std::chrono::hours(24 * 365));
  const auto now = std::chrono::steady_clock::now();
  EXPECT_GT(now + longest, now) << "overflows";
}

TEST(RankDevices, RefusesAHangTimeoutThatIsNoTime) {
  for (const char* text : {"0s", "30step", "no"}) {
    EXPECT_THROW(testing::equality_recipe({std::string("run.hang_timeout=") + text}), ConfigError)
        << text;
  }
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
