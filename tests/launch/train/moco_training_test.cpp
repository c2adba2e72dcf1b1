#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "launch/check/check_recipe.h"
#include "launch/data/recipe_source.h"
#include "launch/evaluate/evaluation.h"
#include "parallel/checkpoint/state_list.h"
#include "runtime/data/loader/loader.h"
#include "runtime/data/sample_subset.h"
#include "runtime/files/safetensors.h"
#include "sparse/sparse_model.h"
#include "tests/support/config_error.h"
#include "tests/support/session_in_training.h"
#include "tests/support/some_batch.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::moco;
using testing::SessionInTraining;

using Tensors = std::map<std::string, torch::Tensor>;

Tensors copied_values(const SessionInTraining& run) {
  Tensors copies;
  for (const auto* list : {&run.session.model().parameters, &run.session.model().buffers}) {
    for (const Parameter& parameter : *list) {
      copies[parameter.name] = parameter.tensor.detach().clone();
    }
  }
  return copies;
}

TEST(MocoInTraining, TheMomentumEncoderFollowsBeforeItMakesKeys) {
  SessionInTraining run(moco({"optimizer={name: adamw, lr: 1e-2}"}));
  for (int step = 0; step < 4; ++step) {
    const Tensors before = copied_values(run);
    ASSERT_TRUE(run.session.step({}).applied);
    const Tensors after = copied_values(run);
    for (const auto& [name, value] : after) {
      if (!name.starts_with("key_") || name.find("running_") != std::string::npos) continue;
      const torch::Tensor& query = before.at(name.substr(4));
      // Of a cosine over 5 steps from 0.9.
      const double momentum = 1 - 0.05 * (1 + std::cos(std::numbers::pi * step / 5));
      const torch::Tensor expected =
          step == 0 ? query : momentum * before.at(name) + (1 - momentum) * query;
      EXPECT_TRUE(torch::allclose(value, expected, 1e-13, 1e-15)) << name << ", step " << step;
    }
  }
}

/// Loss of a training's second step. `momentum`: constant; `follow`: moves the key encoder by hand
/// before that step.
double second_loss(const std::string& momentum, double follow) {
  SessionInTraining run(moco({"optimizer={name: adamw, lr: 1e-2}",
                              "task.momentum_schedule=constant", "task.momentum=" + momentum}));
  run.session.step({});
  const Tensors weights = copied_values(run);
  for (const Parameter& parameter : run.session.parameters()) {
    if (!parameter.name.starts_with("key_")) continue;
    torch::Tensor key = parameter.tensor.detach();
    key.lerp_(weights.at(parameter.name.substr(4)), follow);
  }
  return run.session.step({}).loss.item<double>();
}

TEST(MocoInTraining, KeysAreOfTheMomentumEncoderThatHasFollowed) {
  const double loss = second_loss("0.25", 0.0);
  const double of_followed = second_loss("1", 0.75);
  const double of_unmoved = second_loss("1", 0.0);
  EXPECT_NEAR(loss, of_followed, 1e-12);
  EXPECT_GT(std::abs(loss - of_unmoved), 1e-6) << "the order cannot be told from this loss";
}

TEST(MocoInTraining, BothEncodersPlaceTheirExpertsAlike) {
  testing::run_grid(2, 1, [](RankGrid& grid) {
    const Recipe recipe =
        testing::equality_recipe(moco({"parallel.expert_ranks=2", "parallel.placement=by_load"}));
    const OpenSplit data = open_split(make_source(recipe), Split::kTrain);
    // All the load is the first expert's, which is then alone on a rank.
    const UnitLoads loads{{"blocks.1.moe_c", {100, 1, 1, 1, 1}}};
    const Session session(
        recipe, build_model(recipe, data.source->shape(), {&grid, grid.device}, loads), data, grid);
    std::map<std::string, std::vector<int64_t>> units;
    for (const Parameter& parameter : session.parameters()) {
      units[parameter.name] = parameter.unit_ids;
    }
    const std::string experts = "backbone.blocks.1.moe_c.experts.*.fc1.weight";
    EXPECT_EQ(units.at(experts).size(), grid.world->rank() == 0 ? 1u : 4u);
    EXPECT_EQ(units.at("key_" + experts), units.at(experts));
  });
}

TEST(MocoInTraining, FrozenStemsStayAsTheyAreToTheLastBit) {
  SessionInTraining run(moco({testing::vit("pool: cls, positions: sin_cos"),
                              "optimizer={name: lamb, lr: 1e-2, weight_decay: 0.1, rules: [{match: "
                              "'backbone.stem.*', freeze: true}]}"}));
  const Tensors before = copied_values(run);
  for (int step = 0; step < 5; ++step) run.session.step({});
  const Tensors after = copied_values(run);
  for (const char* name : {"stem.weight", "stem.bias"}) {
    const torch::Tensor& stem = before.at(std::string("backbone.") + name);
    EXPECT_TRUE(after.at(std::string("backbone.") + name).equal(stem));
    EXPECT_TRUE(after.at(std::string("key_backbone.") + name).equal(stem));
  }
  EXPECT_FALSE(after.at("backbone.norm.weight").equal(before.at("backbone.norm.weight")));
}

/// Bytes of a session's state, as checkpoints hold it.
struct StateBytes {
  uint64_t query = 0;  ///< backbone and projector, which the momentum encoder has copies of
  uint64_t key = 0;
  uint64_t all = 0;
};

StateBytes state_bytes(SessionInTraining& run) {
  StateBytes bytes;
  for (const SafetensorsEntry& entry : list_state(run.session).entries()) {
    const uint64_t own = tensor_bytes(entry.dtype, entry.shape).value();
    bytes.all += own;
    if (entry.name.find("key_") != std::string::npos) bytes.key += own;
    if (entry.name.starts_with("backbone.") || entry.name.starts_with("projector.")) {
      bytes.query += own;
    }
  }
  return bytes;
}

TEST(MocoInTraining, TheMomentumEncoderIsSavedOnceAndHasNoOptimizerState) {
  const std::vector<std::string> overrides = moco({"optimizer={name: adamw, lr: 1e-2}"});
  SessionInTraining run(overrides);
  run.session.step({});
  const StateBytes bytes = state_bytes(run);
  EXPECT_EQ(bytes.key, bytes.query);
  for (const Parameter& parameter : run.session.parameters()) {
    EXPECT_EQ(parameter.tensor.grad().defined(), !parameter.name.starts_with("key_"))
        << parameter.name;
  }
  const CheckedRecipe checked = check_recipe({"", overrides, {}, testing::kEqualityRecipe},
                                             config::UnsetVariable::kKeep, std::nullopt);
  EXPECT_EQ(checked.counts.checkpoint.data_bytes, bytes.all) << "of the estimate of `shoal check`";
}

TEST(MocoInTraining, SparsityOfTheQueryEncoderIsWhatTheKeyEncoderFollows) {
  SessionInTraining run(moco({testing::sparse("unstructured")}));
  SparseMasks& sparse = run.session.model().sparse->masks();
  std::map<std::string, torch::Tensor> mask_of_key;
  for (size_t layer = 0; layer < sparse.layers().size(); ++layer) {
    const std::string& name = sparse.layers()[layer].parameter.name;
    EXPECT_TRUE(name.starts_with("backbone.")) << name;
    mask_of_key["key_" + name] = sparse.mask(layer).clone();
  }
  ASSERT_FALSE(mask_of_key.empty());
  ASSERT_TRUE(run.session.step({}).applied);  // keys are those of the queries before it
  const Tensors after = copied_values(run);
  for (const auto& [name, mask] : mask_of_key) {
    EXPECT_TRUE((after.at(name) != 0).equal(mask)) << name;
  }
}

TEST(MocoInTraining, WhatLayersComputeOfTheirWeightsIsRefused) {
  const auto error_of = [](const std::string& sparsity) {
    return testing::config_error_of([&] { SessionInTraining run(moco({sparsity})); });
  };
  EXPECT_THAT(
      error_of(testing::sparse("diagonal", "rigl", "density: 0.4, permutation: {name: random}")),
      HasSubstr("sparsity.permutation: "));
  EXPECT_THAT(error_of(testing::sparse_by_choice("diagonal")), HasSubstr("sparsity.rule: "));
  EXPECT_THAT(error_of(testing::sparse("butterfly, grid: 4, low_rank: 0.3", "set",
                                       "density: 0.75, layers: [channel_mlp.fc1]")),
              HasSubstr("sparsity.pattern: "));
}

TEST(MocoInTraining, EvaluationLooksForNeighboursAmongTrainingSamples) {
  SessionInTraining run(moco({"task.references=15", "task.neighbours=5"}));
  run.session.step({});
  const OpenSplit valid = open_split(make_source(run.recipe), Split::kValid);
  Task& task = run.session.task();
  const Evaluation evaluation = evaluate({task, run.recipe, valid, run.grid}, 1);
  EXPECT_EQ(evaluation.samples, 11);
  // By hand: the 15 training samples, then each batch of validation.
  const torch::NoGradGuard no_grad;
  task.references()->clear();
  const auto references = spread_samples(*run.data.samples, 15);
  EvalLoader train_loader(*references, loader_settings(run.recipe, run.data, run.grid));
  while (const auto batch = train_loader.next()) task.references()->add(*batch);
  EvalLoader loader(*valid.samples, loader_settings(run.recipe, valid, run.grid));
  double right = 0.0;
  while (const auto batch = loader.next())
    right += testing::sum_of(task.evaluate(*batch), "knn_top1");
  EXPECT_DOUBLE_EQ(evaluation.value("knn_top1"), right / 11);
  EXPECT_GT(evaluation.value("feature_std"), 0.0);
  EXPECT_EQ(run.session.task().score().metric, "knn_top1");
  SessionInTraining without(moco({"task.references=0"}));
  EXPECT_EQ(without.session.task().score().metric, "loss");
}

// A file is evaluated by itself: no sample is a neighbour of its own, also among some that are
// drawn and in a set, and if each is computed apart; samples of another file have no part in it.
TEST(MocoInTraining, SamplesAreNoNeighboursOfTheirOwn) {
  SessionInTraining run(moco({"task.references=20", "task.neighbours=1"}));
  run.data.fingerprint = "the file";
  const auto opened = [&run](const char* file, int64_t count) {
    OpenSplit split = open_split(run.data.source, Split::kTrain);
    split.fingerprint = file;
    split.samples = SampleSubset::draw(std::move(split.samples), count, 7);
    return split;
  };
  const OpenSplit all = opened("the file", 1000), other = opened("another", 9);
  std::vector<OpenSet> sets(1);
  sets[0] = {"some", opened("the file", 9)};
  Task& task = run.session.task();
  const auto right_of = [&](const OpenSplit& split, bool leaves_out, bool is_apart = false) {
    const torch::NoGradGuard no_grad;
    task.references()->clear();
    const auto references = spread_samples(*run.data.samples, 20);
    EvalLoader train_loader(*references, loader_settings(run.recipe, run.data, run.grid));
    while (const auto batch = train_loader.next()) task.references()->add(*batch);
    std::vector<int64_t> own;
    for (int64_t i = 0; leaves_out && i < split.samples->size(); ++i) {
      own.push_back(-1);
      for (int64_t n = 0; n < references->size(); ++n) {
        if (references->place(n) == split.samples->place(i)) own.back() = n;
      }
    }
    LoaderSettings settings = loader_settings(run.recipe, split, run.grid);
    if (is_apart) settings.cut.group = 1;
    EvalLoader loader(*split.samples, settings);
    double right = 0.0;
    while (auto batch = loader.next()) {
      torch::Tensor& sample_b = batch->context.sample_b;
      if (leaves_out) {
        task.references()->set_own(torch::tensor(own, torch::kInt64).index_select(0, sample_b));
      }
      if (is_apart) sample_b = torch::zeros_like(sample_b);
      right += testing::sum_of(task.evaluate(*batch), "knn_top1");
    }
    return right / static_cast<double>(split.samples->size());
  };
  const auto knn = [&](const OpenSplit& split) {
    const Evaluation evaluation =
        evaluate({task, run.recipe, split, run.grid, &run.data, 0, {}, sets}, 0);
    EXPECT_DOUBLE_EQ(evaluation.value("some.knn_top1"), right_of(sets[0].data, true));
    return evaluation.value("knn_top1");
  };
  EXPECT_DOUBLE_EQ(knn(all), right_of(all, true));
  EXPECT_DOUBLE_EQ(knn(sets[0].data), right_of(sets[0].data, true));
  EXPECT_DOUBLE_EQ(knn(other), right_of(other, false));
  EvaluationParts apart{task, run.recipe, all, run.grid, &run.data};
  apart.each_batch = [](const torch::Tensor&, const Batch&, const EvalOutput&) {};
  EXPECT_DOUBLE_EQ(evaluate(apart, 0).value("knn_top1"), right_of(all, true, true));
  EXPECT_NE(right_of(all, true, true), right_of(all, false, true));
  EXPECT_NE(right_of(all, true), right_of(all, false));
  EXPECT_NE(right_of(sets[0].data, true), right_of(sets[0].data, false));
}

TEST(MocoInTraining, SamplesAreNoNeighboursOfTheirOwnOnSeveralRanks) {
  const auto knn_on = [](RankGrid& grid) {
    const Recipe recipe = testing::equality_recipe(
        moco({"task.references=20", "task.neighbours=1", "parallel.expert_ranks=1"}));
    OpenSplit data = open_split(make_source(recipe), Split::kTrain);
    data.fingerprint = "the file";
    const Session session(recipe, build_model(recipe, data.source->shape(), {&grid, grid.device}),
                          data, grid);
    return evaluate({session.task(), recipe, data, grid, &data}, 0).value("knn_top1");
  };
  RankGrid alone = testing::self_grid();
  const double wanted = knn_on(alone);
  EXPECT_LT(wanted, 1.0) << "samples are their own neighbours";
  testing::run_grid(1, 3, [&](RankGrid& grid) { EXPECT_DOUBLE_EQ(knn_on(grid), wanted); });
}

/// Sample i has the label i.
class Numbered : public SampleSet {
 public:
  int64_t size() const override { return 10; }
  Sample read(int64_t index, int64_t /*epoch*/) const override {
    Sample sample;
    sample.label = index;
    return sample;
  }
};

TEST(ReferenceSamples, AreEvenlySpaced) {
  const auto labels = [](int64_t most) {
    const Numbered all;
    const auto samples = spread_samples(all, most);
    std::vector<int64_t> found;
    for (int64_t i = 0; i < samples->size(); ++i) found.push_back(samples->read(i, 0).label);
    return found;
  };
  EXPECT_THAT(labels(4), ::testing::ElementsAre(0, 2, 5, 7));
  EXPECT_THAT(labels(1), ::testing::ElementsAre(0));
  EXPECT_EQ(labels(99).size(), 10u);
}

TEST(LinearProbeInTraining, TheBackboneStaysAsItIsToTheLastBit) {
  SessionInTraining run(
      {"task={name: linear_probe}", "optimizer={name: sgd, lr: 0.1, weight_decay: 0.1}",
       "model.sparse.channel_moe.router={name: sigmoid, k: 2, bias: {rate: 0.05}}"});
  const Tensors before = copied_values(run);
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(run.session.step({}).applied);
  for (const auto& [name, value] : copied_values(run)) {
    EXPECT_EQ(value.equal(before.at(name)), !name.starts_with("head.")) << name;
  }
}

}  // namespace
}  // namespace shoal
