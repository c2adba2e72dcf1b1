#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "tests/support/equality_recipe.h"
#include "tests/support/thread_communicator.h"
#include "tests/support/train_harness.h"

namespace shoal::testing {
namespace {

using Overrides = std::vector<std::string>;

constexpr int64_t kSteps = 5;
constexpr double kTolerance = 1e-12;

struct Shape {
  int64_t expert_ranks, replicas;
  int64_t world() const { return expert_ranks * replicas; }
};

constexpr Shape kShapes[] = {{1, 1}, {2, 1}, {1, 2}, {3, 1}, {2, 2}, {4, 1}};

Overrides with_ranks(Overrides overrides, int64_t expert_ranks) {
  overrides.push_back(fmt::format("parallel.expert_ranks={}", expert_ranks));
  return overrides;
}

TrainingTrace serial(const Overrides& overrides) {
  return train_and_trace(kEqualityRecipe, with_ranks(overrides, 1), kSteps,
                         make_self_communicator());
}

TrainingTrace on_threads(const Overrides& overrides, const Shape& shape) {
  TrainingTrace trace;
  std::mutex mutex;
  run_owning_ranks(shape.world(), [&](std::unique_ptr<Communicator> world) {
    const bool is_first = world->rank() == 0;
    TrainingTrace own = train_and_trace(kEqualityRecipe, with_ranks(overrides, shape.expert_ranks),
                                        kSteps, std::move(world));
    const std::lock_guard lock(mutex);
    if (is_first) trace = std::move(own);
  });
  return trace;
}

void expect_equal_on_all_shapes(const Overrides& overrides) {
  const TrainingTrace expected = serial(overrides);
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(fmt::format("{} expert ranks x {} replicas", shape.expert_ranks, shape.replicas));
    EXPECT_THAT(differences(expected, on_threads(overrides, shape), kTolerance, {}),
                ::testing::IsEmpty());
  }
}

TEST(ParallelEqualsSerialRanks, WithTheDefaultRouting) { expect_equal_on_all_shapes({}); }

TEST(ParallelEqualsSerialRanks, WithEveryCapacityOrder) {
  for (const char* order : {"slot_major", "batch_priority", "probability", "position"}) {
    SCOPED_TRACE(order);
    const Overrides overrides = capped(order);
    const TrainingTrace expected = serial(overrides);
    EXPECT_GT(expected.dropped, 0.0) << "a capacity that drops nothing tests no order";
    for (const Shape& shape : {Shape{2, 1}, Shape{1, 2}, Shape{3, 1}, Shape{4, 1}}) {
      EXPECT_THAT(differences(expected, on_threads(overrides, shape), kTolerance, {}),
                  ::testing::IsEmpty())
          << shape.expert_ranks << " x " << shape.replicas;
    }
  }
}

TEST(ParallelEqualsSerialRanks, WithPaddedUnits) {
  Overrides overrides = capped("slot_major");
  overrides.push_back("model.sparse.token_moe.capacity.mode=padded");
  overrides.push_back("model.sparse.channel_moe.capacity.mode=padded");
  expect_equal_on_all_shapes(overrides);
}

TEST(ParallelEqualsSerialRanks, WithNoiseAndImportanceDropping) {
  const Overrides overrides{
      "model.sparse.token_moe.router={name: importance_score, k: 1, drop: 0.25}",
      "model.sparse.channel_moe.router.noise=gaussian"};
  EXPECT_NE(serial(overrides).losses, serial({}).losses) << "noise and drops must act";
  expect_equal_on_all_shapes(overrides);
}

TEST(ParallelEqualsSerialRanks, WithAccumulationAndRanksWithoutSamples) {
  const Overrides overrides{"train.accumulate=3", "train.batch=18"};
  EXPECT_EQ(on_threads(overrides, {4, 1}).ranks_without_samples, 1);
  expect_equal_on_all_shapes(overrides);
}

TEST(ParallelEqualsSerialRanks, WithAGlobalScopeAtEqualAccumulation) {
  const Overrides overrides{"train.accumulate=3", losses("global")};
  expect_equal_on_all_shapes(overrides);
}

TEST(ParallelEqualsSerialRanks, WithASequenceScope) {
  expect_equal_on_all_shapes({losses("sequence")});
}

TEST(ParallelEqualsSerialRanks, WithExpertsThatNoTokenChooses) {
  const Overrides overrides{"model.sparse.channel_moe.experts.count=64"};
  EXPECT_GT(serial(overrides).units_without_tokens, 0);
  expect_equal_on_all_shapes(overrides);
}

TEST(ParallelEqualsSerialRanks, WithEveryOptimizer) {
  for (const char* optimizer : {"{name: sgd, lr: 0.1, momentum: 0.9}", "{name: adamw, lr: 1e-2}",
                                "{name: lamb, lr: 1e-2, weight_decay: 0.1}"}) {
    SCOPED_TRACE(optimizer);
    const Overrides overrides{fmt::format("optimizer={}", optimizer), "train.clip_norm=0.05"};
    const TrainingTrace expected = serial(overrides);
    EXPECT_GT(expected.grad_norms[0], 0.05) << "clipping must act";
    for (const Shape& shape : {Shape{2, 1}, Shape{1, 2}, Shape{2, 2}, Shape{3, 1}}) {
      EXPECT_THAT(differences(expected, on_threads(overrides, shape), kTolerance, {}),
                  ::testing::IsEmpty())
          << shape.expert_ranks << " x " << shape.replicas;
    }
  }
}

TEST(ParallelEqualsSerialRanks, AccumulationChangesNothingButRounding) {
  const TrainingTrace expected = serial({"train.batch=18"});
  EXPECT_THAT(
      differences(expected, serial({"train.batch=18", "train.accumulate=3"}), kTolerance, {}),
      ::testing::IsEmpty());
}

// The comparison itself must be able to fail.
TEST(ParallelEqualsSerialRanks, ADifferentSeedIsNoticedEverywhere) {
  const auto found = differences(serial({}), serial({"run.seed=2"}), kTolerance);
  EXPECT_GT(found.size(), 10u);
}

}  // namespace
}  // namespace shoal::testing
