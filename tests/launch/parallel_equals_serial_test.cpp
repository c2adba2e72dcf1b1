#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/equality_recipe.h"
#include "tests/support/thread_communicator.h"
#include "tests/support/train_harness.h"

namespace shoal::testing {
namespace {

using Overrides = std::vector<std::string>;

/// From literals: GCC 12 takes an initializer list of long strings for an overflow.
Overrides set(std::initializer_list<const char*> overrides) {
  return {overrides.begin(), overrides.end()};
}

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
  for (const char* stage : {"token_moe", "channel_moe"}) {
    overrides.push_back(fmt::format("model.sparse.{}.capacity.mode=padded", stage));
  }
  expect_equal_on_all_shapes(overrides);
}

TEST(ParallelEqualsSerialRanks, WithNoiseAndImportanceDropping) {
  EXPECT_NE(serial(noisy()).losses, serial({}).losses) << "noise and drops must act";
  expect_equal_on_all_shapes(noisy());
}

TEST(ParallelEqualsSerialRanks, WithAccumulationAndRanksWithoutSamples) {
  const Overrides overrides = set({"train.accumulate=3", "train.batch=18"});
  EXPECT_EQ(on_threads(overrides, {4, 1}).ranks_without_samples, 1);
  expect_equal_on_all_shapes(overrides);
}

TEST(ParallelEqualsSerialRanks, WithAGlobalScopeAtEqualAccumulation) {
  const Overrides overrides =
      set({"train.batch=18", "train.accumulate=3", losses("global").c_str()});
  expect_equal_on_all_shapes(overrides);
}

TEST(ParallelEqualsSerialRanks, WithASequenceScope) {
  expect_equal_on_all_shapes(set({losses("sequence").c_str()}));
}

TEST(ParallelEqualsSerialRanks, WithExpertsThatNoTokenChooses) {
  const Overrides overrides = set({"model.sparse.channel_moe.experts.count=64"});
  EXPECT_GT(serial(overrides).units_without_tokens, 0);
  expect_equal_on_all_shapes(overrides);
}

TEST(ParallelEqualsSerialRanks, WithEveryOptimizer) {
  // Adam divides by the root of the average square, so that an element whose gradient is a
  // millionth of the largest loses six digits more than gradients do; eps bounds that.
  for (const char* optimizer :
       {"{name: sgd, lr: 0.1, momentum: 0.9}", "{name: adamw, lr: 1e-2, eps: 1e-4}",
        "{name: lamb, lr: 1e-2, weight_decay: 0.1, eps: 1e-4}"}) {
    SCOPED_TRACE(optimizer);
    const std::string chosen = fmt::format("optimizer={}", optimizer);
    const Overrides overrides = set({chosen.c_str(), "train.clip_norm=0.05"});
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
  const TrainingTrace expected = serial(set({"train.batch=18"}));
  EXPECT_THAT(
      differences(expected, serial(set({"train.batch=18", "train.accumulate=3"})), kTolerance, {}),
      ::testing::IsEmpty());
}

// The comparison itself must be able to fail.
TEST(ParallelEqualsSerialRanks, ADifferentSeedIsNoticedEverywhere) {
  const auto found = differences(serial({}), serial(set({"run.seed=2"})), kTolerance);
  EXPECT_GT(found.size(), 10u);
}

}  // namespace
}  // namespace shoal::testing
