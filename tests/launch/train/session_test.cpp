#include "launch/train/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>

#include "parallel/checkpoint/state_list.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/ranks.h"

namespace shoal {
namespace {

using testing::equality_recipe;
using ::testing::MatchesRegex;

/// The parameter of the second MoE stage's experts, of which each rank holds its own.
torch::Tensor expert_weight(Session& session) {
  for (const Parameter& parameter : session.parameters()) {
    if (parameter.name.find("moe_c.experts.*.fc1.weight") != std::string::npos) {
      return parameter.tensor;
    }
  }
  throw std::logic_error("no such expert");
}

TEST(SessionRanks, OneBadGradientOnOneRankChangesNothingOnAnyRank) {
  const Recipe recipe =
      equality_recipe({"optimizer={name: adamw, lr: 1e-2}", "parallel.expert_ranks=2"});
  testing::run_grid(2, 1, [&recipe](RankGrid& grid) {
    const auto data = open_split(make_source(recipe), Split::kTrain);
    Session session(recipe, data, grid);
    EXPECT_TRUE(session.step({}).applied);
    const auto digest = [&] { return state_digest(session, 0, 0, *grid.world); };
    const std::string before = digest();
    bool is_bad = grid.world->rank() == 1;
    expert_weight(session).register_hook([&is_bad](const torch::Tensor& gradient) {
      return is_bad ? gradient * std::numeric_limits<double>::quiet_NaN() : gradient;
    });
    const StepOutcome outcome = session.step({});
    EXPECT_FALSE(outcome.applied);
    EXPECT_THAT(outcome.not_finite,
                MatchesRegex("the gradient of .*moe_c\\.experts\\.[0-9]\\.fc1\\.weight"));
    EXPECT_EQ(digest(), before);
    EXPECT_EQ(session.nonfinite_in_row(), 1);
    EXPECT_EQ(session.steps_done(), 2);
    is_bad = false;
    EXPECT_TRUE(session.step({}).applied);
    EXPECT_NE(digest(), before);
    EXPECT_EQ(session.nonfinite_in_row(), 0);
    EXPECT_EQ(session.skipped_steps(), 1);
  });
}

TEST(SessionRanks, FrozenParametersKeepTheirBitsAndTakeNoPartInTheNorm) {
  for (const char* sharded : {"false", "true"}) {
    const Recipe recipe = equality_recipe(
        {"optimizer={name: adamw, lr: 1e-2, rules: [{match: '*.moe_c.*', freeze: true}]}",
         std::string("parallel.shard_optimizer=") + sharded, "parallel.expert_ranks=2"});
    testing::run_grid(2, 2, [&recipe](RankGrid& grid) {
      const auto data = open_split(make_source(recipe), Split::kTrain);
      Session session(recipe, data, grid);
      std::map<std::string, torch::Tensor> before;
      for (const Parameter& parameter : session.parameters()) {
        before[parameter.name] = parameter.tensor.detach().clone();
      }
      for (int step = 0; step < 3; ++step) session.step({});
      int64_t num_frozen = 0;
      for (const Parameter& parameter : session.parameters()) {
        const bool is_frozen = parameter.name.find(".moe_c.") != std::string::npos;
        num_frozen += is_frozen ? 1 : 0;
        EXPECT_EQ(parameter.tensor.requires_grad(), !is_frozen) << parameter.name;
        EXPECT_EQ(parameter.tensor.grad().defined(), !is_frozen) << parameter.name;
        EXPECT_EQ(parameter.tensor.equal(before[parameter.name]), is_frozen) << parameter.name;
      }
      EXPECT_GE(num_frozen, 5);
      int64_t num_moments = 0;
      for (const StateEntry& entry : list_state(session).tensors) {
        if (!entry.entry.name.starts_with("optimizer.")) continue;
        ++num_moments;
        EXPECT_EQ(entry.entry.name.find(".moe_c."), std::string::npos) << entry.entry.name;
      }
      EXPECT_GT(num_moments, 0);
    });
  }
}

// Pieces come in the order of buckets, the last layers first.
TEST(SessionRanks, SharedOutOptimizersNameTheSameBadTensor) {
  for (const char* sharded : {"false", "true"}) {
    const Recipe recipe = equality_recipe({std::string("parallel.shard_optimizer=") + sharded});
    testing::run_grid(1, 2, [&recipe](RankGrid& grid) {
      const auto data = open_split(make_source(recipe), Split::kTrain);
      Session session(recipe, data, grid);
      for (const Parameter& parameter : session.parameters()) {
        torch::Tensor tensor = parameter.tensor;
        if (parameter.name.find("token_mlp.fc1.weight") == std::string::npos &&
            parameter.name.find("head.weight") == std::string::npos) {
          continue;
        }
        tensor.register_hook([](const torch::Tensor& gradient) {
          return gradient * std::numeric_limits<double>::quiet_NaN();
        });
      }
      EXPECT_THAT(session.step({}).not_finite,
                  MatchesRegex("the gradient of .*token_mlp.fc1.weight"));
    });
  }
}

TEST(Model, NamesAStageWithMoreUnitsThanAGpuRoutesTo) {
  const auto refusal = [](int64_t experts, c10::DeviceType device) -> std::string {
    const Recipe recipe =
        equality_recipe({"model.sparse.channel_moe.experts.count=" + std::to_string(experts)});
    const BuiltModel model =
        build_model(recipe, make_source(recipe)->shape(), nullptr, torch::kMeta);
    try {
      check_units(model.stages, device);
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.code(), ExitCode::kTopology);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(6000, torch::kCUDA), "");
  EXPECT_EQ(refusal(6001, torch::kCPU), "");
  EXPECT_THAT(refusal(6001, torch::kCUDA),
              ::testing::HasSubstr("blocks.1.moe_c: 6001 units, a GPU routes to at most 6000"));
}

}  // namespace
}  // namespace shoal
