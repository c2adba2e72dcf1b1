#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/equality_recipe.h"
#include "tests/support/routing_matrix.h"
#include "tests/support/train_harness.h"

namespace shoal::testing {
namespace {

class ParallelEqualsSerialMpi : public ::testing::TestWithParam<EqualityCase> {};

// Every rank trains serially too, and compares the whole.
TEST_P(ParallelEqualsSerialMpi, OnEveryGridOfThisWorld) {
  constexpr int64_t kSteps = 5;
  std::vector<std::string> overrides = GetParam().overrides;
  overrides.emplace_back("parallel.expert_ranks=1");
  const TrainingTrace expected =
      train_and_trace(kEqualityRecipe, overrides, kSteps, make_self_communicator());
  const int64_t world = make_mpi_communicator()->size();
  for (int64_t expert_ranks = 1; expert_ranks <= world; ++expert_ranks) {
    if (world % expert_ranks != 0) continue;
    SCOPED_TRACE(fmt::format("{} expert ranks x {}", expert_ranks, world / expert_ranks));
    overrides.back() = fmt::format("parallel.expert_ranks={}", expert_ranks);
    const TrainingTrace actual =
        train_and_trace(kEqualityRecipe, overrides, kSteps, make_mpi_communicator());
    EXPECT_THAT(differences(expected, actual, 1e-12, GetParam().noise_weights),
                ::testing::IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ParallelEqualsSerialMpi, ::testing::ValuesIn(equality_cases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Routing, ParallelEqualsSerialMpi, ::testing::ValuesIn(routing_selection()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace shoal::testing
