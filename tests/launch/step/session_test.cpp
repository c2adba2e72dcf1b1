#include "launch/step/session.h"
#include "launch/data/recipe_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "parallel/checkpoint/state_list.h"
#include "sparse/sparse_model.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/model_fill.h"
#include "tests/support/model_on.h"
#include "tests/support/ranks.h"
#include "tests/support/session_in_training.h"

namespace shoal {
namespace {

using testing::equality_recipe;
using ::testing::MatchesRegex;
using testing::SessionInTraining;

using Tensors = std::map<std::string, torch::Tensor>;

Tensors copies_of(const std::vector<Parameter>& list) {
  Tensors copies;
  for (const Parameter& one : list) copies[one.name] = one.tensor.detach().clone();
  return copies;
}

/// A router whose selection bias moves with the loads.
const std::string kBiasedRouter = testing::channel_moe("name: sigmoid, k: 2, bias: {rate: 0.01}");

/// Makes a trained tensor's gradients NaN while `is_bad`.
void poison(Session& session, const bool& is_bad) {
  for (const Parameter& parameter : session.parameters()) {
    if (!parameter.tensor.requires_grad()) continue;
    torch::Tensor tensor = parameter.tensor;
    tensor.register_hook([&is_bad](const torch::Tensor& gradient) {
      return is_bad ? gradient * std::numeric_limits<double>::quiet_NaN() : gradient;
    });
    return;
  }
}

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
    Session session(recipe, testing::model_on(recipe, data, grid), data, grid);
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

TEST(SessionRanks, AForwardPassThatIsNotFiniteOnOneRankChangesNothingOnAnyRank) {
  const Recipe recipe = equality_recipe(
      testing::moco({"optimizer={name: adamw, lr: 1e-2}", "parallel.expert_ranks=2"}));
  testing::run_grid(2, 1, [&recipe](RankGrid& grid) {
    const auto data = open_split(make_source(recipe), Split::kTrain);
    Session session(recipe, testing::model_on(recipe, data, grid), data, grid);
    EXPECT_TRUE(session.step({}).applied);
    const auto digest = [&] { return state_digest(session, 0, 0, *grid.world); };
    const std::string before = digest();
    const auto put = [&session](const torch::Tensor& value) {
      const torch::NoGradGuard no_grad;
      session.parameters().front().tensor.copy_(value);
    };
    const torch::Tensor first = session.parameters().front().tensor.detach().clone();
    if (grid.world->rank() == 1) {
      put(torch::full_like(first, std::numeric_limits<double>::quiet_NaN()));
    }
    EXPECT_FALSE(session.step({}).applied);
    put(first);
    EXPECT_EQ(digest(), before);
    EXPECT_TRUE(session.step({}).applied);
  });
}

TEST(Session, ASkippedStepGivesBackWhatMovedBeforeIt) {
  const std::string adamw = "optimizer={name: adamw, lr: 1e-2}";
  for (const std::vector<std::string>& overrides :
       {testing::moco({adamw, kBiasedRouter}), testing::moco({adamw, "train.average=0.9"}),
        testing::with_hspmn(testing::text_data()),
        std::vector<std::string>{adamw, testing::sparse("unstructured")},
        std::vector<std::string>{adamw, testing::sparse_by_choice("diagonal")}}) {
    SessionInTraining run(overrides);
    bool is_bad = false;
    poison(run.session, is_bad);
    const auto digest = [&] { return state_digest(run.session, 0, 0, *run.grid.world); };
    ASSERT_TRUE(run.session.step({}).applied);
    for (int step = 0; step < 2; ++step) {
      const std::string before = digest();
      is_bad = true;
      ASSERT_FALSE(run.session.step({}).applied);
      EXPECT_EQ(digest(), before) << overrides[0] << ", skipped after step " << step + 1;
      is_bad = false;
      ASSERT_TRUE(run.session.step({}).applied);
      EXPECT_NE(digest(), before);
    }
  }
}

TEST(Session, AKeyEncoderBeginsAsItsQueryEncoderWhereTheFirstStepIsSkipped) {
  SessionInTraining run(testing::moco());
  const Tensors before = copies_of(run.session.model().buffers);
  bool is_bad = true;
  poison(run.session, is_bad);
  EXPECT_FALSE(run.session.step({}).applied);
  const Tensors weights = copies_of(run.session.parameters());
  for (const auto& [name, value] : weights) {
    if (!name.starts_with("key_")) continue;
    EXPECT_TRUE(value.equal(weights.at(name.substr(4)))) << name;
  }
  for (const auto& [name, value] : copies_of(run.session.model().buffers)) {
    EXPECT_TRUE(value.equal(before.at(name))) << name;
  }
}

/// Names of the buffers that three steps move.
std::vector<std::string> moved_buffers(std::vector<std::string> overrides,
                                       const std::string& rules) {
  overrides.push_back("optimizer={name: adamw, lr: 1e-2, rules: [" + rules + "]}");
  SessionInTraining run(overrides);
  const Tensors before = copies_of(run.session.model().buffers);
  for (int step = 0; step < 3; ++step) run.session.step({});
  std::vector<std::string> moved;
  for (const auto& [name, value] : copies_of(run.session.model().buffers)) {
    if (!value.equal(before.at(name))) moved.push_back(name);
  }
  return moved;
}

TEST(Session, BuffersOfFrozenModulesStay) {
  using ::testing::Each;
  using ::testing::ElementsAre;
  using ::testing::HasSubstr;
  using ::testing::IsEmpty;
  using ::testing::Not;
  const std::string bias = "backbone.blocks.1.moe_c.router.selection_bias";
  const auto of_router = [](const std::string& rules) {
    return moved_buffers({kBiasedRouter}, rules);
  };
  EXPECT_THAT(of_router(""), ElementsAre(bias));
  EXPECT_THAT(of_router("{match: '*.experts.*', freeze: true}"), ElementsAre(bias));
  EXPECT_THAT(of_router("{match: 'backbone.*', freeze: true}"), IsEmpty());
  EXPECT_THAT(of_router("{match: '*.moe_c.router.weight', freeze: true}"), IsEmpty());
  EXPECT_THAT(of_router("{match: '*.selection_bias', freeze: true}"), IsEmpty());
  EXPECT_THAT(of_router("{match: 'backbone.*', freeze: true}, {match: '*_bias', freeze: false}"),
              ElementsAre(bias));
  const auto gates = testing::with_hspmn(testing::text_data());
  EXPECT_THAT(moved_buffers(gates, ""), Not(IsEmpty()));
  EXPECT_THAT(moved_buffers(gates, "{match: 'backbone.blocks.*', freeze: true}"), IsEmpty());
  const auto heads = moved_buffers(testing::moco(), "{match: 'projector.*', freeze: true}");
  EXPECT_THAT(heads, Each(::testing::AnyOf(HasSubstr("predictor."), HasSubstr("key_projector."))));
  EXPECT_GT(heads.size(), 5u);
}

TEST(SessionRanks, FrozenParametersKeepTheirBitsAndTakeNoPartInTheNorm) {
  for (const char* sharded : {"false", "true"}) {
    const Recipe recipe = equality_recipe(
        {"optimizer={name: adamw, lr: 1e-2, rules: [{match: '*.moe_c.*', freeze: true}]}",
         std::string("parallel.shard_optimizer=") + sharded, "parallel.expert_ranks=2"});
    testing::run_grid(2, 2, [&recipe](RankGrid& grid) {
      const auto data = open_split(make_source(recipe), Split::kTrain);
      Session session(recipe, testing::model_on(recipe, data, grid), data, grid);
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
      Session session(recipe, testing::model_on(recipe, data, grid), data, grid);
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

constexpr double kNormTolerance = 1e-12;

StepFlags asks_for_norms() {
  StepFlags flags;
  flags.log_layers = true;
  return flags;
}

/// A session whose weights are as in the middle of a training.
struct FilledSession {
  FilledSession(const Recipe& recipe, RankGrid& grid)
      : data(open_split(make_source(recipe), Split::kTrain)),
        session(recipe, testing::model_on(recipe, data, grid), data, grid) {
    testing::fill_parameters(session.task());
    if (const auto& sparse = session.model().sparse) sparse->masks().tensors_loaded();
  }

  OpenSplit data;
  Session session;
};

/// The layer of a parameter: of weight and bias the module, of others the parameter itself.
std::string module_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  const std::string last = parameter.substr(dot + 1);
  return last == "weight" || last == "bias" ? parameter.substr(0, dot) : parameter;
}

/// Sums of squares of each layer's tensors.
std::map<std::string, double> square_sums_of_layers(const Tensors& tensors) {
  std::map<std::string, double> sums;
  for (const auto& [name, value] : tensors) {
    sums[module_of(name)] += value.square().sum().item<double>();
  }
  return sums;
}

const std::string kDecayingAdamW = "optimizer={name: adamw, lr: 1e-2, weight_decay: 0.1}";

/// Dense and sparse, clipped and not, with gradient accumulation, and with frozen parameters.
std::vector<std::vector<std::string>> trainings_with_norms() {
  return {{kDecayingAdamW},
          {kDecayingAdamW, testing::kClip},
          {kDecayingAdamW, testing::kClip, "parallel.shard_optimizer=true"},
          testing::accumulated({kDecayingAdamW}),
          {"optimizer={name: adamw, lr: 1e-2, rules: [{match: '*.fc1.weight', freeze: true}]}",
           "parallel.shard_optimizer=true"},
          {kDecayingAdamW, testing::sparse("unstructured")},
          {kDecayingAdamW, testing::sparse("block, size: 2"), "parallel.shard_optimizer=true"},
          testing::gpt2(testing::kBlockExperts)};
}

TEST(Session, NormsOfLayersAreThoseOfTheTensors) {
  for (const std::vector<std::string>& overrides : trainings_with_norms()) {
    const Recipe recipe = equality_recipe(overrides);
    RankGrid grid = testing::self_grid();
    FilledSession run(recipe, grid);
    EXPECT_TRUE(run.session.step({}).layers.empty());
    for (int step = 1; step < 4; ++step) {
      SCOPED_TRACE(::testing::PrintToString(overrides) + ", step " + std::to_string(step));
      const Tensors before = copies_of(run.session.parameters());
      const StepOutcome outcome = run.session.step(asks_for_norms());
      const Tensors after = copies_of(run.session.parameters());
      Tensors updates, gradients;
      for (const Parameter& parameter : run.session.parameters()) {
        if (!parameter.tensor.requires_grad()) continue;
        updates[parameter.name] = after.at(parameter.name) - before.at(parameter.name);
        gradients[parameter.name] = parameter.tensor.grad();
      }
      const double clip_norm = recipe.train.clip_norm;
      const double shrunk = clip_norm > 0 ? std::max(1.0, outcome.grad_norm / clip_norm) : 1.0;
      EXPECT_EQ(shrunk > 1.0, clip_norm > 0);
      Tensors trained;
      for (const auto& [name, value] : updates) trained[name] = after.at(name);
      const auto weight = square_sums_of_layers(trained), update = square_sums_of_layers(updates),
                 gradient = square_sums_of_layers(gradients);
      EXPECT_EQ(outcome.layers.size(), weight.size());
      double square_sum = 0.0;
      for (const LayerNorms& layer : outcome.layers) {
        ASSERT_TRUE(weight.contains(layer.layer)) << layer.layer;
        const double norm = std::sqrt(weight.at(layer.layer));
        EXPECT_NEAR(layer.weight, norm, kNormTolerance * norm) << layer.layer;
        EXPECT_NEAR(layer.update, std::sqrt(update.at(layer.layer)), kNormTolerance * norm);
        EXPECT_NEAR(layer.gradient, std::sqrt(gradient.at(layer.layer)) * shrunk,
                    kNormTolerance * outcome.grad_norm);
        square_sum += layer.gradient * layer.gradient;
      }
      EXPECT_NEAR(std::sqrt(square_sum), outcome.grad_norm, kNormTolerance * outcome.grad_norm);
    }
  }
}

TEST(Session, ASkippedStepHasNoNormsOfLayers) {
  SessionInTraining run({});
  bool is_bad = true;
  poison(run.session, is_bad);
  EXPECT_TRUE(run.session.step(asks_for_norms()).layers.empty());
  is_bad = false;
  EXPECT_FALSE(run.session.step(asks_for_norms()).layers.empty());
}

/// The norms of three steps.
std::vector<std::vector<LayerNorms>> norms_of(const Recipe& recipe, RankGrid& grid) {
  FilledSession run(recipe, grid);
  std::vector<std::vector<LayerNorms>> norms;
  for (int step = 0; step < 3; ++step) norms.push_back(run.session.step(asks_for_norms()).layers);
  return norms;
}

TEST(SessionRanks, NormsOfLayersDoNotDependOnTheGrid) {
  for (const std::vector<std::string>& overrides : trainings_with_norms()) {
    RankGrid alone = testing::self_grid();
    const auto expected = norms_of(equality_recipe(overrides), alone);
    for (const auto& [expert_ranks, replicas] : {std::pair{2, 1}, {1, 2}, {2, 2}, {4, 1}}) {
      SCOPED_TRACE(::testing::PrintToString(overrides) + " on " + std::to_string(expert_ranks) +
                   " x " + std::to_string(replicas));
      const Recipe recipe = equality_recipe(
          testing::joined(overrides, {"parallel.expert_ranks=" + std::to_string(expert_ranks)}));
      testing::run_grid(expert_ranks, replicas, [&](RankGrid& grid) {
        const auto norms = norms_of(recipe, grid);
        for (size_t step = 0; step < expected.size(); ++step) {
          ASSERT_EQ(norms[step].size(), expected[step].size());
          double largest = 0.0;  // gradient
          for (const LayerNorms& layer : expected[step]) {
            largest = std::max(largest, layer.gradient);
          }
          for (size_t i = 0; i < expected[step].size(); ++i) {
            const LayerNorms &own = norms[step][i], &serial = expected[step][i];
            EXPECT_EQ(own.layer, serial.layer);
            EXPECT_NEAR(own.weight, serial.weight, kNormTolerance * serial.weight) << own.layer;
            EXPECT_NEAR(own.update, serial.update, kNormTolerance * serial.weight) << own.layer;
            EXPECT_NEAR(own.gradient, serial.gradient, kNormTolerance * largest) << own.layer;
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace shoal
