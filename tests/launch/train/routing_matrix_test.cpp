#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "tests/support/routing_matrix.h"
#include "tests/support/thread_communicator.h"
#include "tests/support/train_harness.h"

namespace shoal::testing {
namespace {

constexpr double kMatrixTolerance = 1e-12;

TrainingTrace routed_on_threads(const EqualityCase& test, int64_t world, int64_t expert_ranks) {
  std::vector<std::string> overrides = test.overrides;
  overrides.push_back(fmt::format("parallel.expert_ranks={}", expert_ranks));
  TrainingTrace trace;
  std::mutex mutex;
  run_owning_ranks(world, [&](std::unique_ptr<Communicator> comm) {
    const bool is_first = comm->rank() == 0;
    TrainingTrace own = train_and_trace(kEqualityRecipe, overrides, test.steps, std::move(comm));
    const std::lock_guard lock(mutex);
    if (is_first) trace = std::move(own);
  });
  return trace;
}

class RoutingMatrixRanks : public ::testing::TestWithParam<EqualityCase> {};

// The serial run is one thread rank; six units on four ranks are uneven.
TEST_P(RoutingMatrixRanks, ParallelEqualsSerial) {
  const TrainingTrace expected = routed_on_threads(GetParam(), 1, 1);
  for (const auto& [world, expert_ranks] : {std::pair{2, 2}, {3, 3}, {4, 2}, {4, 4}}) {
    SCOPED_TRACE(fmt::format("{} ranks, {} of them share the units", world, expert_ranks));
    EXPECT_THAT(
        differences(expected, routed_on_threads(GetParam(), world, expert_ranks), kMatrixTolerance),
        ::testing::IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, RoutingMatrixRanks, ::testing::ValuesIn(routing_matrix()),
                         [](const auto& info) { return info.param.name; });

bool has(const EqualityCase& test, const std::string& part) {
  return ("_" + test.name + "_").find("_" + part + "_") != std::string::npos;
}

// What the cases claim to vary must meet: all pairs of these, and each with each capacity.
TEST(RoutingMatrix, KindsSharedExpertsPlacementAndCapacitiesMeetInPairs) {
  const std::vector<std::vector<std::string>> sides{
      {"Plain", "Gated"},
      {"SharedPlain", "SharedGated"},
      {"ByCost", "Contiguous"},
      {"Accumulated"},
      {"Dropless", "capped_slot_major", "capped_batch_priority", "capped_probability",
       "capped_position", "padded_slot_major", "padded_batch_priority", "padded_probability",
       "padded_position"}};
  for (size_t i = 0; i < sides.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      for (const std::string& a : sides[i]) {
        for (const std::string& b : sides[j]) {
          const std::vector<EqualityCase> cases = routing_matrix();
          EXPECT_TRUE(
              std::any_of(cases.begin(), cases.end(),
                          [&](const EqualityCase& test) { return has(test, a) && has(test, b); }))
              << a << " and " << b;
        }
      }
    }
  }
}

// Capacities that drop nothing would all be the same case.
TEST(RoutingMatrix, CapacityDropsUnlessTheLoadIsEven) {
  std::map<std::string, double> without_capacity;  // routers may drop by themselves
  for (const EqualityCase& test : routing_matrix()) {
    const std::string router = test.name.substr(0, test.name.find('_'));
    const double dropped = routed_on_threads(test, 1, 1).dropped;
    if (has(test, "Dropless")) {
      without_capacity[router] = dropped;
    } else if (router != "ForcedBalanced") {
      EXPECT_GT(dropped, without_capacity.at(router)) << test.name;
    }
  }
}

TEST(RoutingMatrix, SomeCasesLeaveARankWithoutSamples) {
  const std::vector<EqualityCase> cases = routing_matrix();
  const auto found = std::find_if(cases.begin(), cases.end(), [](const EqualityCase& test) {
    return has(test, "Accumulated");
  });
  ASSERT_NE(found, cases.end());
  EXPECT_EQ(routed_on_threads(*found, 4, 4).ranks_without_tokens, 1);
}

}  // namespace
}  // namespace shoal::testing
