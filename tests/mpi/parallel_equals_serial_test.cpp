#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/equality_recipe.h"
#include "tests/support/train_harness.h"

namespace shoal::testing {
namespace {

using Overrides = std::vector<std::string>;

// Every rank trains serially too, and compares the whole.
void expect_equal(Overrides overrides) {
  overrides.push_back(fmt::format("parallel.expert_ranks={}", 1));
  const TrainingTrace expected =
      train_and_trace(kEqualityRecipe, overrides, 5, make_self_communicator());
  const int64_t world = make_mpi_communicator()->size();
  for (int64_t expert_ranks = 1; expert_ranks <= world; ++expert_ranks) {
    if (world % expert_ranks != 0) continue;
    SCOPED_TRACE(fmt::format("{} expert ranks x {}", expert_ranks, world / expert_ranks));
    overrides.back() = fmt::format("parallel.expert_ranks={}", expert_ranks);
    const TrainingTrace actual =
        train_and_trace(kEqualityRecipe, overrides, 5, make_mpi_communicator());
    EXPECT_THAT(differences(expected, actual, 1e-12), ::testing::IsEmpty());
  }
}

TEST(ParallelEqualsSerialMpi, WithNoiseDropsAndCapacity) {
  Overrides overrides = capped("batch_priority");
  for (const std::string& override : noisy()) overrides.push_back(override);
  expect_equal(overrides);
}

TEST(ParallelEqualsSerialMpi, WithAccumulationAndAGlobalScope) {
  expect_equal({"train.accumulate=3", "train.batch=18", losses("global")});
}

TEST(ParallelEqualsSerialMpi, WithLambAndClipping) {
  expect_equal({"optimizer={name: lamb, lr: 1e-2, weight_decay: 0.1}", "train.clip_norm=0.05"});
}

}  // namespace
}  // namespace shoal::testing
