#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "parallel/state_list.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/ranks.h"
#include "tests/support/thread_communicator.h"
#include "tests/support/train_harness.h"

namespace shoal::testing {
namespace {

using ::testing::IsEmpty;
using Overrides = std::vector<std::string>;

constexpr int64_t kSteps = 5;
constexpr double kTolerance = 1e-12;

/// How a training is run, which must not show in what it computes.
struct SpeedCase {
  std::string name;
  Overrides what;  ///< what is trained
  Overrides how;

  friend std::ostream& operator<<(std::ostream& out, const SpeedCase& test) {
    return out << test.name;
  }
};

Overrides exchange(const std::string& keys) {
  Overrides overrides;
  for (const char* stage : {"token_moe", "channel_moe"}) {
    overrides.push_back(fmt::format("model.sparse.{}.exchange={{{}}}", stage, keys));
  }
  return overrides;
}

Overrides router(const std::string& keys, bool takes_losses, const std::string& capacity) {
  Overrides overrides;
  for (const char* stage : {"token_moe", "channel_moe"}) {
    overrides.push_back(fmt::format("model.sparse.{}.router={{{}}}", stage, keys));
    if (!takes_losses) overrides.push_back(fmt::format("model.sparse.{}.losses=[]", stage));
    if (!capacity.empty()) {
      overrides.push_back(fmt::format("model.sparse.{}.capacity={{{}}}", stage, capacity));
    }
  }
  return overrides;
}

std::vector<SpeedCase> speed_cases() {
  const std::string two_nodes = "parallel.ranks_per_node=2";
  std::vector<SpeedCase> cases{
      {"Hierarchical", {}, joined(exchange("hierarchical: true"), {two_nodes})},
      {"HierarchicalInChunks", capped("probability"),
       joined(exchange("hierarchical: true, chunks: 3"), {two_nodes})},
      {"NodesOfOneRank", padded(),
       joined(exchange("hierarchical: true"), {"parallel.ranks_per_node=1"})},
      {"Recompute", noisy(), {"train.recompute=true"}},
      {"RecomputeVit", {vit(kBlockExperts)}, {"train.recompute=true"}},
      {"RecomputeConvNext", {convnext(kBlockNexus)}, {"train.recompute=true"}},
      {"GradientsAfterTheBackwardPass", accumulated(), {"parallel.overlap_gradients=false"}},
      {"SharedExpertsWhileRowsTravel",
       {"model.sparse.channel_moe.shared={count: 1, hidden: 5}"},
       exchange("chunks: 2")},
  };
  for (const int64_t chunks : {2, 3, 4}) {
    cases.push_back({fmt::format("Chunks{}", chunks), capped("slot_major"),
                     exchange(fmt::format("chunks: {}", chunks))});
  }
  for (const auto& [name, optimizer] : equality_optimizers()) {
    cases.push_back(
        {"ShardedOptimizer_" + name, {optimizer, kClip}, {"parallel.shard_optimizer=true"}});
  }
  const Overrides all =
      joined(exchange("hierarchical: true, chunks: 2"),
             {two_nodes, "train.recompute=true", "parallel.shard_optimizer=true"});
  const std::string lamb = equality_optimizers().back().second;
  const auto family = [&](const std::string& name, const std::string& keys, bool takes_losses,
                          const std::string& capacity = "mode: capped, factor: 0.8, min: 1") {
    cases.push_back({"AllWith_" + name, joined(router(keys, takes_losses, capacity), {lamb}), all});
  };
  family("top_k", "name: top_k, k: 2, noise: gaussian", true);
  family("noisy_top_k", "name: noisy_top_k, k: 2", true);
  family("sigmoid", "name: sigmoid, k: 2, bias: {rate: 0.05}", true);
  family("sqrt_softplus", "name: sqrt_softplus, k: 2", true);
  family("importance_score", "name: importance_score, k: 2, drop: 0.3", true);
  family("sinkhorn", "name: sinkhorn, k: 2", false);
  family("expert_choice", "name: expert_choice, k: 2", false, "");
  family("hash", "name: hash, k: 2", false);
  family("forced", "name: forced, k: 2", false);
  cases.push_back({"AllWith_nexus",
                   {vit(kBlockNexus)},
                   {"train.recompute=true", "parallel.shard_optimizer=true"}});
  return cases;
}

struct Shape {
  int64_t expert_ranks, replicas;
};

TrainingTrace on_threads(const Overrides& overrides, const Shape& shape) {
  TrainingTrace trace;
  std::mutex mutex;
  run_owning_ranks(shape.expert_ranks * shape.replicas, [&](std::unique_ptr<Communicator> world) {
    const bool is_first = world->rank() == 0;
    TrainingTrace own = train_and_trace(
        kEqualityRecipe,
        joined(overrides, {fmt::format("parallel.expert_ranks={}", shape.expert_ranks)}), kSteps,
        std::move(world));
    const std::lock_guard lock(mutex);
    if (is_first) trace = std::move(own);
  });
  return trace;
}

class SpeedSwitchesRanks : public ::testing::TestWithParam<SpeedCase> {};

TEST_P(SpeedSwitchesRanks, ChangeNoResult) {
  const SpeedCase& test = GetParam();
  const TrainingTrace expected =
      train_and_trace(kEqualityRecipe, test.what, kSteps, make_self_communicator());
  // All of them fit nodes of two ranks.
  for (const Shape& shape : {Shape{4, 1}, Shape{2, 2}, Shape{2, 1}, Shape{1, 2}}) {
    SCOPED_TRACE(fmt::format("{} expert ranks x {} replicas", shape.expert_ranks, shape.replicas));
    EXPECT_THAT(differences(expected, on_threads(joined(test.what, test.how), shape), kTolerance),
                IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, SpeedSwitchesRanks, ::testing::ValuesIn(speed_cases()),
                         [](const auto& info) { return info.param.name; });

// Where only overlap differs, no bit may.
TEST(SpeedSwitchesRanks, OverlapAloneChangesNoBit) {
  for (const Overrides& how :
       {Overrides{"parallel.overlap_gradients=false"}, Overrides{"train.recompute=true"}}) {
    for (const Shape& shape : {Shape{2, 2}, Shape{1, 2}}) {
      const TrainingTrace plain = on_threads(noisy(), shape);
      const TrainingTrace other = on_threads(joined(noisy(), how), shape);
      EXPECT_EQ(plain.losses, other.losses) << how.front();
      EXPECT_EQ(plain.grad_norms, other.grad_norms) << how.front();
    }
  }
}

Recipe recipe_of(const Overrides& overrides) {
  return config::load_options_text<Recipe>(kEqualityRecipe, "test", {"", overrides, nullptr})
      .options;
}

const Overrides kLamb{"optimizer={name: lamb, lr: 1e-2, weight_decay: 0.1}",
                      "parallel.expert_ranks=2"};

TEST(ShardedOptimizerRanks, HoldsItsShareAndSavesTheSameState) {
  const Recipe plain = recipe_of(kLamb);
  const Recipe sharded = recipe_of(joined(kLamb, {"parallel.shard_optimizer=true"}));
  run_grid(2, 2, [&](RankGrid& grid) {
    const auto data = make_source(plain)->open(Split::kTrain);
    Session whole(plain, *data, grid), shared(sharded, *data, grid);
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

TEST(ShardedOptimizerRanks, StateIsSpreadEvenly) {
  const Overrides wide{"model.width=64", "optimizer={name: adamw}"};
  const Recipe plain = recipe_of(wide);
  const Recipe sharded = recipe_of(joined(wide, {"parallel.shard_optimizer=true"}));
  run_grid(1, 4, [&](RankGrid& grid) {
    const auto data = make_source(plain)->open(Split::kTrain);
    const Session whole(plain, *data, grid), shared(sharded, *data, grid);
    const auto bytes = static_cast<double>(whole.optimizer().state_bytes());
    EXPECT_NEAR(static_cast<double>(shared.optimizer().state_bytes()), bytes / 4, 0.05 * bytes / 4);
  });
}

}  // namespace
}  // namespace shoal::testing
