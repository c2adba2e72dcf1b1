#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tests/support/routing_matrix.h"
#include "tests/support/thread_communicator.h"
#include "tests/support/train_harness.h"

namespace shoal::testing {
namespace {

constexpr int64_t kSteps = 5;
constexpr double kTolerance = 1e-12;

TrainingTrace on_threads(std::vector<std::string> overrides, int64_t world, int64_t expert_ranks) {
  overrides.push_back(fmt::format("parallel.expert_ranks={}", expert_ranks));
  TrainingTrace trace;
  std::mutex mutex;
  run_owning_ranks(world, [&](std::unique_ptr<Communicator> comm) {
    const bool is_first = comm->rank() == 0;
    TrainingTrace own = train_and_trace(kEqualityRecipe, overrides, kSteps, std::move(comm));
    const std::lock_guard lock(mutex);
    if (is_first) trace = std::move(own);
  });
  return trace;
}

class RoutingMatrixRanks : public ::testing::TestWithParam<EqualityCase> {};

// The serial run is one thread rank; six units on four ranks are uneven.
TEST_P(RoutingMatrixRanks, ParallelEqualsSerial) {
  const TrainingTrace expected = on_threads(GetParam().overrides, 1, 1);
  for (const auto& [world, expert_ranks] : {std::pair{2, 2}, {3, 3}, {4, 2}, {4, 4}}) {
    SCOPED_TRACE(fmt::format("{} ranks, {} of them share the units", world, expert_ranks));
    EXPECT_THAT(
        differences(expected, on_threads(GetParam().overrides, world, expert_ranks), kTolerance),
        ::testing::IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, RoutingMatrixRanks, ::testing::ValuesIn(routing_matrix()),
                         [](const auto& info) { return info.param.name; });

// Capacities that drop nothing would all be the same case.
TEST(RoutingMatrix, EveryCapacityDropsUnlessUnitsChooseOrTheLoadIsEven) {
  for (const EqualityCase& test : routing_matrix()) {
    const bool is_open = test.name.find("Dropless") != std::string::npos ||
                         test.name.find("ForcedBalanced") != std::string::npos;
    if (is_open) continue;
    EXPECT_GT(on_threads(test.overrides, 1, 1).dropped, 0.0) << test.name;
  }
}

}  // namespace
}  // namespace shoal::testing
