#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/equality_recipe.h"
#include "tests/support/thread_communicator.h"
#include "tests/support/train_harness.h"

namespace shoal::testing {
namespace {

using ::testing::IsEmpty;
using Overrides = std::vector<std::string>;

constexpr int64_t kComparedSteps = 5;
constexpr double kTolerance = 1e-12;
constexpr const char* kOrders[] = {"slot_major", "batch_priority", "probability", "position"};

struct Shape {
  int64_t expert_ranks, replicas;
  int64_t world() const { return expert_ranks * replicas; }
};

// Units do not divide by three in either stage: 3 x 1 is uneven.
constexpr Shape kShapes[] = {{1, 1}, {2, 1}, {1, 2}, {3, 1}, {2, 2}, {4, 1}};

Overrides with_ranks(Overrides overrides, int64_t expert_ranks) {
  overrides.push_back(fmt::format("parallel.expert_ranks={}", expert_ranks));
  return overrides;
}

TrainingTrace serial(const Overrides& overrides) {
  return train_and_trace(kEqualityRecipe, with_ranks(overrides, 1), kComparedSteps,
                         make_self_communicator());
}

TrainingTrace on_threads(const Overrides& overrides, const Shape& shape) {
  TrainingTrace trace;
  std::mutex mutex;
  run_owning_ranks(shape.world(), [&](std::unique_ptr<Communicator> world) {
    const bool is_first = world->rank() == 0;
    TrainingTrace own = train_and_trace(kEqualityRecipe, with_ranks(overrides, shape.expert_ranks),
                                        kComparedSteps, std::move(world));
    const std::lock_guard lock(mutex);
    if (is_first) trace = std::move(own);
  });
  return trace;
}

class ParallelEqualsSerialRanks : public ::testing::TestWithParam<EqualityCase> {};

TEST_P(ParallelEqualsSerialRanks, OnEveryGrid) {
  const EqualityCase& test = GetParam();
  const TrainingTrace expected = serial(test.overrides);
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(fmt::format("{} expert ranks x {} replicas", shape.expert_ranks, shape.replicas));
    EXPECT_THAT(
        differences(expected, on_threads(test.overrides, shape), kTolerance, test.noise_weights),
        IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ParallelEqualsSerialRanks, ::testing::ValuesIn(equality_cases()),
                         [](const auto& info) { return info.param.name; });

// What the cases claim to vary must act, or they compare the default with itself.

TEST(EqualityCases, EveryOrderDropsAndDropsOthers) {
  std::vector<std::vector<double>> losses;
  for (const char* order : kOrders) {
    const TrainingTrace trace = serial(capped(order));
    EXPECT_GT(trace.dropped, 0.0) << order;
    EXPECT_THAT(losses, ::testing::Not(::testing::Contains(trace.losses))) << order;
    losses.push_back(trace.losses);
  }
}

TEST(EqualityCases, NoiseAndImportanceDropsAct) {
  const Overrides all = noisy();
  const std::vector<double> plain = serial({}).losses;
  for (const std::string& one : all) EXPECT_NE(serial({one}).losses, plain) << one;
}

TEST(EqualityCases, StochasticDepthActs) {
  for (const std::string& model :
       {vit(kBlockExperts), convnext(kBlockExperts), vit(kBlockNexus), convnext(kBlockNexus)}) {
    EXPECT_NE(serial({model}).losses, serial({model, "model.drop_path=0"}).losses) << model;
  }
}

TEST(EqualityCases, SomeRankHasNoSamples) {
  EXPECT_EQ(on_threads(accumulated(), {4, 1}).ranks_without_tokens, 1);
}

TEST(EqualityCases, SomeExpertHasNoTokens) {
  EXPECT_GT(serial({kManyExperts}).units_without_tokens, 0);
}

double norm(const NamedTensors& gradients) {
  double square_sum = 0.0;
  for (const auto& [name, value] : gradients) square_sum += value.square().sum().item<double>();
  return std::sqrt(square_sum);
}

TEST(EqualityCases, ClippingActs) {
  for (const auto& [name, optimizer] : equality_optimizers()) {
    const TrainingTrace trace = serial({optimizer, kClip});
    EXPECT_GT(trace.grad_norms[0], kClipNorm) << name;
    // The optimizers leave gradients as they found them.
    EXPECT_NEAR(norm(trace.gradients[0]), kClipNorm, kTolerance * kClipNorm) << name;
  }
}

TEST(EqualityCases, ClippingByTheLargestValueActs) {
  const auto largest = [](const TrainingTrace& trace) {
    double most = 0.0;
    for (const auto& [name, value] : trace.gradients[0]) {
      if (value.numel() > 0) most = std::max(most, value.abs().max().item<double>());
    }
    return most;
  };
  EXPECT_GT(largest(serial({})), kClipMaxNorm);
  EXPECT_NEAR(largest(serial(clipped_by_largest())), kClipMaxNorm, kTolerance * kClipMaxNorm);
}

/// Every loss of scope sequence and group; a small learning rate, so that rounding does not grow
/// above the tolerance.
Overrides every_local_loss() {
  std::vector<std::string> all;
  for (const char* scope : {"sequence", "group"}) {
    for (const char* loss :
         {"importance", "load", "switch", "switch, counts: first_choice", "z", "kl_uniform"}) {
      all.push_back(fmt::format("{{name: {}, weight: 0.05, scope: {}}}", loss, scope));
    }
  }
  return {
      channel_moe("name: top_k, k: 2, noise: gaussian", fmt::format("{}", fmt::join(all, ", "))),
      "optimizer.lr=0.005"};
}

/// What differs between one step of nine routing groups and three micro-steps of three.
std::vector<std::string> what_accumulation_changes(const Overrides& test) {
  return differences(serial(joined({"train.batch=18"}, test)), serial(accumulated(test)),
                     kTolerance);
}

TEST(EqualityCases, RoutersAndLossesOfAccumulationAct) {
  const auto losses_of = [](const Overrides& test) { return serial(test).losses; };
  const auto plain = losses_of({channel_moe("name: top_k, k: 2, noise: none")});
  EXPECT_NE(losses_of({channel_moe("name: sinkhorn, k: 2")}), plain);
  EXPECT_NE(losses_of({channel_moe("name: sigmoid, k: 2, bias: {rate: 0.05}")}),
            losses_of({channel_moe("name: sigmoid, k: 2")}));
  const auto without =
      losses_of({channel_moe("name: top_k, k: 2, noise: gaussian"), "optimizer.lr=0.005"});
  EXPECT_NE(losses_of(every_local_loss()), without);
}

TEST(EqualityCases, AccumulationChangesNothingButRounding) {
  std::vector<Overrides> cases{{},
                               noisy(),
                               {losses("group")},
                               {losses("sequence")},
                               every_local_loss(),
                               {channel_moe("name: sigmoid, k: 2, bias: {rate: 0.05}")},
                               {channel_moe("name: sinkhorn, k: 2")},
                               {channel_moe("name: expert_choice, k: 2")},
                               {vit(kBlockNexus)},
                               {"task.mix={mixup: 0.8, cutmix: 1}"}};
  for (const char* order : kOrders) {
    cases.push_back(capped(order));
    cases.push_back(joined(capped(order), noisy()));
  }
  for (const Overrides& test : cases) {
    EXPECT_THAT(what_accumulation_changes(test), IsEmpty())
        << fmt::format("{}", fmt::join(test, " "));
  }
}

// Its losses are of the micro-step as a whole.
TEST(EqualityCases, AccumulationChangesTheGlobalScope) {
  EXPECT_THAT(what_accumulation_changes({losses("global")}), ::testing::Not(IsEmpty()));
}

TEST(EqualityCases, LeaveOutOnlyTheRowsTheyName) {
  const auto found = [](int64_t row, const std::string& skip) {
    TrainingTrace expected, actual;
    expected.outputs = actual.outputs = torch::zeros({1}, torch::kFloat64);
    expected.weights["qkv.bias"] = torch::ones({6}, torch::kFloat64);
    actual.weights["qkv.bias"] = expected.weights["qkv.bias"].clone();
    actual.weights["qkv.bias"][row] += 1e-6;
    return differences(expected, actual, kTolerance, {skip}).size();
  };
  for (const int64_t row : {0, 1, 2, 3, 4, 5}) {
    EXPECT_EQ(found(row, "qkv.bias[2/3]"), row == 2 || row == 3 ? 0u : 1u) << row;
    EXPECT_EQ(found(row, "qkv.bias"), 0u) << row;
    EXPECT_EQ(found(row, "proj.bias"), 1u) << row;
  }
}

// The comparison itself must be able to fail.
TEST(EqualityCases, ADifferentSeedIsNoticedEverywhere) {
  const auto found = differences(serial({}), serial({"run.seed=2"}), kTolerance);
  EXPECT_GT(found.size(), 10u);
}

}  // namespace
}  // namespace shoal::testing
