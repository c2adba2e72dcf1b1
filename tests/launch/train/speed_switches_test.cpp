#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <algorithm>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "launch/data/recipe_source.h"
#include "parallel/checkpoint/state_list.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/model_on.h"
#include "tests/support/ranks.h"
#include "tests/support/speed_cases.h"
#include "tests/support/thread_communicator.h"
#include "tests/support/train_harness.h"

namespace shoal::testing {
namespace {

using ::testing::IsEmpty;
constexpr int64_t kSwitchSteps = 5;
constexpr double kSwitchTolerance = 1e-12;

struct SwitchShape {
  int64_t expert_ranks, replicas;
};

TrainingTrace switched_on_threads(const Overrides& overrides, const SwitchShape& shape) {
  TrainingTrace trace;
  std::mutex mutex;
  run_owning_ranks(shape.expert_ranks * shape.replicas, [&](std::unique_ptr<Communicator> world) {
    const bool is_first = world->rank() == 0;
    TrainingTrace own = train_and_trace(
        kEqualityRecipe,
        joined(overrides, {fmt::format("parallel.expert_ranks={}", shape.expert_ranks)}),
        kSwitchSteps, std::move(world));
    const std::lock_guard lock(mutex);
    if (is_first) trace = std::move(own);
  });
  return trace;
}

class SpeedSwitchesRanks : public ::testing::TestWithParam<SpeedCase> {};

TEST_P(SpeedSwitchesRanks, ChangeNoResult) {
  const SpeedCase& test = GetParam();
  const TrainingTrace expected =
      train_and_trace(kEqualityRecipe, test.what, kSwitchSteps, make_self_communicator());
  const bool has_nodes_of_two = std::ranges::count(test.how, "parallel.ranks_per_node=2") > 0;
  for (const SwitchShape& shape : {SwitchShape{4, 1}, SwitchShape{2, 2}, SwitchShape{2, 1},
                                   SwitchShape{1, 2}, SwitchShape{3, 1}}) {
    if (has_nodes_of_two && shape.expert_ranks == 3) continue;
    SCOPED_TRACE(fmt::format("{} expert ranks x {} replicas", shape.expert_ranks, shape.replicas));
    EXPECT_THAT(differences(expected, switched_on_threads(joined(test.what, test.how), shape),
                            kSwitchTolerance, test.noise_weights),
                IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, SpeedSwitchesRanks, ::testing::ValuesIn(speed_cases()),
                         [](const auto& info) { return info.param.name; });

// Where only overlap differs, no bit may.
TEST(SpeedSwitchesRanks, OverlapAloneChangesNoBit) {
  for (const Overrides& how :
       {Overrides{"parallel.overlap_gradients=false"}, Overrides{"train.recompute=true"}}) {
    for (const SwitchShape& shape : {SwitchShape{2, 2}, SwitchShape{1, 2}}) {
      const TrainingTrace plain = switched_on_threads(noisy(), shape);
      const TrainingTrace other = switched_on_threads(joined(noisy(), how), shape);
      EXPECT_THAT(differences(plain, other, /*tolerance=*/0.0), IsEmpty()) << how.front();
    }
  }
}

const Overrides kLamb{"optimizer={name: lamb, lr: 1e-2, weight_decay: 0.1}",
                      "parallel.expert_ranks=2"};

TEST(ShardedOptimizerRanks, HoldsItsShareAndSavesTheSameState) {
  const Recipe plain = equality_recipe(kLamb);
  const Recipe sharded = equality_recipe(joined(kLamb, {"parallel.shard_optimizer=true"}));
  run_grid(2, 2, [&](RankGrid& grid) {
    const auto data = open_split(make_source(plain), Split::kTrain);
    Session whole(plain, model_on(plain, data, grid), data, grid),
        shared(sharded, model_on(sharded, data, grid), data, grid);
    for (int i = 0; i < 2; ++i) {
      whole.step({});
      shared.step({});
    }
    // Other sums, other roundings: the same numbers of the same names.
    const StateList expected = list_state(whole);
    const StateList actual = list_state(shared);
    EXPECT_LT(actual.tensors.size(), expected.tensors.size());
    for (const StateEntry& entry : actual.tensors) {
      const torch::Tensor& other = expected.find(entry.entry.name).value;
      ASSERT_EQ(entry.value.sizes(), other.sizes()) << entry.entry.name;
      EXPECT_LT((entry.value - other).abs().max().item<double>(), 1e-12) << entry.entry.name;
    }
    // Every name is listed by some rank.
    std::string names;
    for (const StateEntry& entry : actual.tensors) names += entry.entry.name + "\n";
    std::string all;
    for (const std::string& text : gather_text(*grid.world, names)) all += text;
    for (const StateEntry& entry : expected.tensors) {
      EXPECT_THAT(all, ::testing::HasSubstr(entry.entry.name + "\n"));
    }
  });
}

/// What this rank holds of the optimizer's state.
double state_bytes(const Session& session) {
  double bytes = 0.0;
  for (const std::string& kind : session.optimizer().state_kinds()) {
    for (const Parameter& parameter : session.parameters()) {
      for (const torch::Tensor& state : session.optimizer().state_of(kind, parameter.name)) {
        bytes += static_cast<double>(state.nbytes());
      }
    }
  }
  return bytes;
}

TEST(ShardedOptimizerRanks, StateIsSpreadEvenly) {
  const Overrides wide{"model.width=64", "optimizer={name: adamw}"};
  const Recipe plain = equality_recipe(wide);
  const Recipe sharded = equality_recipe(joined(wide, {"parallel.shard_optimizer=true"}));
  run_grid(1, 4, [&](RankGrid& grid) {
    const auto data = open_split(make_source(plain), Split::kTrain);
    const Session whole(plain, model_on(plain, data, grid), data, grid),
        shared(sharded, model_on(sharded, data, grid), data, grid);
    const double bytes = state_bytes(whole);
    EXPECT_NEAR(state_bytes(shared), bytes / 4, 0.05 * bytes / 4);
  });
}

}  // namespace
}  // namespace shoal::testing
