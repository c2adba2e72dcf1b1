#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/equality_recipe.h"
#include "tests/support/routing_matrix.h"
#include "tests/support/speed_cases.h"
#include "tests/support/train_harness.h"

namespace shoal::testing {
namespace {

constexpr int64_t kSteps = 5;

/// Trains `what` serially, then as `how` says on every grid of this world, and compares the whole.
/// Every rank does.
void expect_equal_on_every_grid(const std::vector<std::string>& what,
                                const std::vector<std::string>& how,
                                const std::vector<std::string>& noise_weights) {
  const TrainingTrace expected =
      train_and_trace(kEqualityRecipe, what, kSteps, make_self_communicator());
  const int64_t world = make_mpi_communicator()->size();
  for (int64_t expert_ranks = 1; expert_ranks <= world; ++expert_ranks) {
    if (world % expert_ranks != 0) continue;
    SCOPED_TRACE(fmt::format("{} expert ranks x {}", expert_ranks, world / expert_ranks));
    const std::string grid = fmt::format("parallel.expert_ranks={}", expert_ranks);
    const TrainingTrace actual = train_and_trace(kEqualityRecipe, joined(joined(what, how), {grid}),
                                                 kSteps, make_mpi_communicator());
    EXPECT_THAT(differences(expected, actual, 1e-12, noise_weights), ::testing::IsEmpty());
  }
}

class ParallelEqualsSerialMpi : public ::testing::TestWithParam<EqualityCase> {};

TEST_P(ParallelEqualsSerialMpi, OnEveryGridOfThisWorld) {
  expect_equal_on_every_grid(GetParam().overrides, {}, GetParam().noise_weights);
}

class SpeedSwitchesMpi : public ::testing::TestWithParam<SpeedCase> {};

TEST_P(SpeedSwitchesMpi, ChangeNoResult) {
  const bool has_pairs = make_mpi_communicator()->size() % 2 == 0;
  const Overrides nodes = has_pairs ? Overrides{} : Overrides{"parallel.ranks_per_node=1"};
  expect_equal_on_every_grid(GetParam().what, joined(GetParam().how, nodes),
                             GetParam().noise_weights);
}

INSTANTIATE_TEST_SUITE_P(Cases, SpeedSwitchesMpi, ::testing::ValuesIn(speed_selection()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Cases, ParallelEqualsSerialMpi, ::testing::ValuesIn(equality_cases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Routing, ParallelEqualsSerialMpi, ::testing::ValuesIn(routing_selection()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace shoal::testing
