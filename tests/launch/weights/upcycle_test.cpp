#include "launch/weights/upcycle.h"
#include "launch/data/recipe_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "launch/check/check_recipe.h"
#include "launch/step/session.h"
#include "launch/train/resume.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/model_on.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/some_batch.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using testing::equality_recipe;
using ::testing::HasSubstr;
using testing::joined;

using Overrides = std::vector<std::string>;

constexpr ImageShape kImage{3, 8, 8};
constexpr int64_t kImages = 6;
/// Float32 sums in another order, through three blocks.
constexpr double kTolerance = 1e-5;

const std::string kVit = "backbone: vit, patch: 4, width: 8, heads: 2, ";
const std::string kNormalised = "router: {name: top_k, k: 2, weights: {normalise: topk_softmax}}";

Overrides dense(const std::string& keys = "depth: 3, hidden: 12") {
  return {"model={" + kVit + keys + "}"};
}

/// A ViT of three blocks with experts in the last one, which takes the weights of a dense run.
Overrides upcycled(const std::string& run, const Overrides& more = {}) {
  return joined({fmt::format("model={{{}depth: 3, hidden: 12, moe: {{{}, experts: {{count: 4, "
                             "hidden: 12}}}}, upcycle: true, init_from: {}}}",
                             kVit, kNormalised, run)},
                more);
}

Recipe recipe_of(const Overrides& overrides) {
  const Overrides all =
      joined({"train.precision=float32", "optimizer={name: adamw, lr: 1e-2}"}, overrides);
  return equality_recipe(all);
}

/// A session and what it needs to live.
struct Training {
  Training(const Overrides& overrides, RankGrid& grid)
      : recipe(recipe_of(overrides)),
        data(open_split(make_source(recipe), Split::kTrain)),
        session(recipe, testing::model_on(recipe, data, grid), data, grid) {}

  torch::Tensor logits() {
    const torch::NoGradGuard no_grad;
    Batch batch = testing::some_batch(kImages, kImage);
    batch.image_bVCHW = batch.image_bVCHW.to(torch::kFloat32);
    batch.token_bS = torch::arange(kImages * 8, torch::kInt64).view({kImages, 8});  // of text
    return session.task().outputs(testing::in_step(batch, testing::some_step(kImages, false)));
  }
  torch::Tensor parameter(const std::string& name) const {
    for (const Parameter& parameter : session.parameters()) {
      if (parameter.name == name) return parameter.tensor.detach();
    }
    TORCH_CHECK(false, "no parameter ", name);
  }

  Recipe recipe;
  OpenSplit data;
  Session session;
};

class Upcycle : public ::testing::Test {
 protected:
  /// Trains a dense model for a few steps into a run folder of its own.
  std::string train_dense(const Overrides& overrides = dense()) {
    const RunFolder folder{scratch_.file(fmt::format("dense-{}", num_runs_++))};
    std::filesystem::create_directories(folder.checkpoints());
    RankGrid grid = testing::self_grid();
    Training training(overrides, grid);
    for (int step = 0; step < 4; ++step) training.session.step({});
    Log log(folder.path + ".log", 0, nullptr);
    PosixFileSystem files;
    CheckpointWriter writer(
        begin_or_resume(training.session, training.recipe, folder, {false, log}), *grid.world,
        files);
    const int64_t done = training.session.steps_done();
    writer.save(training.session, {done, training.session.samples_done(), std::nullopt});
    logits_ = training.logits();
    weight_ = training.parameter("backbone.blocks.2.mlp.fc1.weight");
    return folder.path;
  }
  static void load(Training& training) { load_initial_weights(training.session, training.recipe); }
  /// What loading is refused with, and its advice.
  static std::string refusal(const Overrides& overrides) {
    RankGrid grid = testing::self_grid();
    Training training(overrides, grid);
    try {
      load(training);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kMismatch) << error.what();
      return std::string(error.what()) + " | " + error.hint();
    }
    return "no error";
  }

  testing::ScratchFolder scratch_;
  int num_runs_ = 0;
  torch::Tensor logits_, weight_;  ///< of the last dense model
};

double apart(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST_F(Upcycle, StartsWithTheDenseModelsLogitsOnOneExpertRankAndTwo) {
  const std::string run = train_dense();
  ASSERT_GT(logits_.abs().max().item<double>(), 0.01);
  const torch::Tensor expected = logits_;
  for (const int64_t expert_ranks : {1, 2}) {
    testing::run_grid(expert_ranks, 1, [&](RankGrid& grid) {
      Training training(upcycled(run, {fmt::format("parallel.expert_ranks={}", expert_ranks)}),
                        grid);
      EXPECT_GT(apart(training.logits(), expected), kTolerance);
      load(training);
      EXPECT_LT(apart(training.logits(), expected), kTolerance);
      EXPECT_TRUE(training.session.step({}).applied);
    });
  }
}

TEST_F(Upcycle, TakesConvNextsToo) {
  const std::string net =
      "backbone: convnext, stem_patch: 2, depths: [1, 1, 1], widths: [4, 4, 8], expansion: 2, "
      "layer_scale: 0.5";
  const std::string run = train_dense({"model={" + net + "}"});
  RankGrid grid = testing::self_grid();
  Training training({fmt::format("model={{{}, moe: {{{}, experts: {{count: 3, hidden: 16}}}}, "
                                 "upcycle: true, init_from: {}}}",
                                 net, kNormalised, run)},
                    grid);
  load(training);
  EXPECT_LT(apart(training.logits(), logits_), kTolerance);
}

TEST_F(Upcycle, TakesDecodersToo) {
  Overrides text{"task={name: lm}"};
  for (const std::string split : {"train", "valid"}) {
    std::ofstream(scratch_.file(split + ".txt")) << std::string(900, 'a') << split;
  }
  text.push_back(
      fmt::format("data={{source: text, path: '{}', sequence: 8, train: {{files: "
                  "[train.txt]}}, valid: {{files: [valid.txt]}}}}",
                  scratch_.file(".")));
  const std::string gpt2 = "backbone: gpt2, width: 8, depth: 3, heads: 2, hidden: 12";
  const std::string run = train_dense(joined(text, {"model={" + gpt2 + "}"}));
  const std::string experts = fmt::format(
      "model={{{}, moe: {{{}, experts: {{count: 3, hidden: 12, activation: gelu_tanh}}}}, "
      "upcycle: true, init_from: {}}}",
      gpt2, kNormalised, run);
  RankGrid grid = testing::self_grid();
  Training training(joined(text, {experts}), grid);
  load(training);
  EXPECT_LT(apart(training.logits(), logits_), kTolerance);
}

/// ConvNeXts of two widths; units are in all blocks.
std::string wide(const std::string& keys) {
  return "backbone: convnext, stem_patch: 2, depths: [1, 2], widths: [4, 8], " + keys;
}

Overrides wide_upcycled(const std::string& run, const std::string& hidden, int64_t expansion) {
  return {fmt::format(
      "model={{{}, sparse_blocks: {{from: 0, every: 1}}, moe: {{{}, experts: "
      "{{count: 3, hidden: {}}}}}, upcycle: true, init_from: {}}}",
      wide(fmt::format("expansion: {}, layer_scale: 0.5", expansion)), kNormalised, hidden, run)};
}

TEST_F(Upcycle, TakesStagesOfSeveralWidths) {
  const std::string run = train_dense({"model={" + wide("layer_scale: 0.5") + "}"});
  RankGrid grid = testing::self_grid();
  Training training(wide_upcycled(run, "auto", 4), grid);
  load(training);
  EXPECT_LT(apart(training.logits(), logits_), kTolerance);
  EXPECT_THAT(refusal(wide_upcycled(run, "16", 4)),
              HasSubstr("set model.moe.experts.hidden=auto, which is 4 times the width"));
}

TEST_F(Upcycle, NamesHiddenWidthsThatNoOptionFits) {
  const std::string run = train_dense({"model={" + wide("expansion: 2, layer_scale: 0.5") + "}"});
  for (const char* hidden : {"8", "16", "auto"}) {
    EXPECT_THAT(refusal(wide_upcycled(run, hidden, 2)),
                AllOf(HasSubstr("hidden widths differ: 8 of 'backbone.blocks.0.mlp.fc1.weight', 16 "
                                "of 'backbone.blocks.1.mlp.fc1.weight'"),
                      HasSubstr("let model.sparse_blocks leave out all but one of them")))
        << hidden;
  }
}

TEST_F(Upcycle, CopiesEachMlpIntoEveryExpertAndLeavesRoutersAsTheyWere) {
  const std::string run = train_dense();
  RankGrid grid = testing::self_grid();
  Training training(upcycled(run), grid), untouched(upcycled(run), grid);
  load(training);
  const torch::Tensor experts = training.parameter("backbone.blocks.2.moe.experts.*.fc1.weight");
  ASSERT_EQ(experts.size(0), 4);
  for (int64_t unit = 0; unit < 4; ++unit) EXPECT_TRUE(experts[unit].equal(weight_.t()));
  const std::string router = "backbone.blocks.2.moe.router.weight";
  EXPECT_TRUE(training.parameter(router).equal(untouched.parameter(router)));
}

TEST_F(Upcycle, NamesBothTensorsWhoseShapesDoNotMatch) {
  const std::string run = train_dense();
  EXPECT_THAT(refusal(upcycled(run, {"model.moe.experts.hidden=10"})),
              AllOf(HasSubstr("experts 'backbone.blocks.2.moe.experts.*.fc1.weight' are [8, 10]"),
                    HasSubstr("'backbone.blocks.2.mlp.fc1.weight' of checkpoint"),
                    HasSubstr("is [12, 8], or [8, 12] as experts keep it"),
                    HasSubstr("set model.moe.experts.hidden=12")));
  EXPECT_THAT(refusal(upcycled(run, {"model.width=16"})),
              AllOf(HasSubstr("are [16, 12] each"), HasSubstr("is [12, 8]"),
                    HasSubstr("use the width that the checkpoint was trained with")));
  EXPECT_THAT(refusal(upcycled(run, {"model.moe.experts.activation=gelu_tanh"})),
              AllOf(HasSubstr("backbone.blocks.2.moe have the activation gelu_tanh"),
                    HasSubstr("set model.moe.experts.activation=gelu")));
  EXPECT_THAT(refusal(upcycled(run, {"model.heads=4"})), HasSubstr("model.heads"));
}

TEST_F(Upcycle, UsesAllOfTheCheckpointAndMissesNothing) {
  const std::string run = train_dense();
  EXPECT_THAT(refusal(upcycled(run, {"model.depth=5"})),
              AllOf(HasSubstr("has no dense 'backbone.blocks.4.mlp.fc1.weight' to copy"),
                    HasSubstr("same backbone, depth and width")));
  const std::string deeper = train_dense(dense("depth: 4, hidden: 12"));
  EXPECT_THAT(refusal(upcycled(deeper)),
              AllOf(HasSubstr("'backbone.blocks.3."), HasSubstr("has no place in this model")));
  // The dense blocks that stay dense.
  EXPECT_THAT(refusal(upcycled(run, {"model.hidden=10"})),
              AllOf(HasSubstr("'backbone.blocks.0.mlp.fc1.weight'"), HasSubstr("[10, 8]")));
}

/// What `check` and `train` refuse the model with before anything is loaded.
std::string mistakes(const Overrides& overrides) {
  try {
    const Recipe recipe = recipe_of(overrides);
    check_upcycling(build_model(recipe, make_source(recipe)->shape()));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no mistake";
}

TEST(Upcycling, RefusesWhatDoesNotStartAsTheDenseModel) {
  const auto with = [](const std::string& key) { return mistakes(upcycled("run", {key})); };
  EXPECT_EQ(mistakes(upcycled("run")), "no mistake");
  EXPECT_EQ(with("model.moe.router.weights.normalise=sum"), "no mistake");
  EXPECT_THAT(with("model.moe.router.weights.normalise=none"),
              AllOf(HasSubstr("model.moe.router: "), HasSubstr("must sum to 1"),
                    HasSubstr("{normalise: topk_softmax}")));
  EXPECT_THAT(with("model.moe.router.weights.scale=2"), HasSubstr("model.moe.router: "));
  const std::string importance =
      "model.moe.router={name: importance_score, k: 2, weights: {normalise: topk_softmax}";
  EXPECT_THAT(with(importance + "}"), HasSubstr("whose tokens choose and that drops none"));
  EXPECT_EQ(with(importance + ", drop: 0}"), "no mistake");
  EXPECT_THAT(with("model.moe.router={name: expert_choice}"),
              HasSubstr("use a router whose tokens choose"));
  EXPECT_THAT(with("model.moe.capacity.mode=capped"),
              HasSubstr("model.moe.capacity.mode: with model.upcycle no token may be dropped"));
  EXPECT_THAT(with("model.moe.shared.count=1"), HasSubstr("model.moe.shared.count: "));
  EXPECT_THAT(with("model.moe.experts={kind: gated, count: 4, hidden: 12}"),
              HasSubstr("model.moe.experts.kind: "));
  EXPECT_THAT(with("model.moe.experts.bias=false"), HasSubstr("model.moe.experts.bias: "));
  EXPECT_THAT(with("model.moe=null"), HasSubstr("the model has no experts"));
  EXPECT_THAT(mistakes({"model.upcycle=true", "model.init_from=run"}),
              HasSubstr("moe_s takes no dense MLP's place"));
}

TEST(Upcycling, NeedsACheckpoint) {
  EXPECT_THAT(mistakes({"model.upcycle=true"}),
              HasSubstr("model.upcycle=true: needs init_from, the dense checkpoint to start from"));
}

TEST(Upcycling, IsPartOfWhatCheckFinds) {
  const testing::ScratchFolder scratch;
  const std::string path = scratch.file("r.yaml");
  std::ofstream(path) << testing::kEqualityRecipe;
  const Overrides overrides =
      upcycled("run", {"model.moe.capacity.mode=capped", "optimizer.no_decay=[heat]"});
  try {
    check_recipe({path, overrides, nullptr}, config::UnsetVariable::kKeep, 1);
    ADD_FAILURE() << "no mistake";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("model.moe.capacity.mode=capped: with model.upcycle"),
                      HasSubstr("optimizer.no_decay=[heat]: no parameter's name contains "
                                "'heat'")));
  }
}

}  // namespace
}  // namespace shoal
