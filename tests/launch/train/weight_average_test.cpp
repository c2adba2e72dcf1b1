#include "parallel/gradients/weight_average.h"
#include "launch/data/recipe_source.h"
#include "launch/model/model_weights.h"
#include "launch/weights/load_weights.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "launch/check/check.h"
#include "launch/check/check_recipe.h"
#include "launch/check/recipe_notes.h"
#include "launch/convert/export.h"
#include "launch/evaluate/evaluation.h"
#include "launch/step/session.h"
#include "launch/train/resume.h"
#include "models/formats/foreign_weights.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_load.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/checkpoint/state_list.h"
#include "runtime/options/config_writer.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/model_fill.h"
#include "tests/support/model_on.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/session_in_training.h"
#include "tests/support/train_run.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using testing::equality_recipe;
using ::testing::HasSubstr;
using testing::joined;
using testing::RunEnd;
using testing::ScratchFolder;
using Overrides = std::vector<std::string>;
using Tensors = std::map<std::string, torch::Tensor>;

const std::string kAverage = "train.average={decay: 0.6}";
const std::string kRouterBias =
    "model.sparse.channel_moe={router: {name: top_k, k: 2, bias: {rate: 0.01}}, experts: {count: "
    "5, hidden: 6}}";

/// Everything that a state lists on this rank, copied.
Tensors tensors_of(Stateful& state) {
  Tensors tensors;
  for (const StateEntry& item : list_state(state).tensors) {
    tensors[item.entry.name] = item.value.clone();
  }
  return tensors;
}

/// What the model computes with.
Tensors weights_in_use(const Session& session) {
  ModelWeights weights = weights_of(session.model());
  return tensors_of(weights);
}

/// A session alone.
struct AveragedTraining {
  explicit AveragedTraining(const Overrides& overrides = {})
      : recipe(equality_recipe(joined({kAverage}, overrides))),
        data(open_split(make_source(recipe), Split::kTrain)),
        session(recipe, testing::model_on(recipe, data, grid), data, grid) {}
  void train(int64_t steps) {
    for (int64_t step = 0; step < steps; ++step) session.step({});
  }
  std::string save(const std::string& folder) {
    std::filesystem::create_directories(folder);
    CheckpointWriter::Options options;
    options.folder = folder;
    options.recipe = config::canonical_text(recipe);
    PosixFileSystem files;
    return CheckpointWriter(options, *grid.world, files)
        .save(session, {session.steps_done(), session.samples_done(), {}})
        .path;
  }

  Recipe recipe;
  RankGrid grid = testing::self_grid();
  OpenSplit data;
  Session session;
};

double largest_difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>() / b.abs().max().clamp_min(1e-300).item<double>();
}

/// `decays`: of the second update and those after it.
void expect_average(const std::string& keys, const std::vector<double>& decays, int64_t every = 1) {
  AveragedTraining run({"train.average={" + keys + "}"});
  Tensors expected;
  for (size_t update = 0; update <= decays.size(); ++update) {
    run.train(every);
    for (const auto& [name, weight] : weights_in_use(run.session)) {
      torch::Tensor& average = expected[name];
      average =
          update == 0 ? weight : decays[update - 1] * average + (1 - decays[update - 1]) * weight;
    }
    const auto averages = run.session.lend_weights();
    for (const auto& [name, average] : weights_in_use(run.session)) {
      EXPECT_LE(largest_difference(average, expected.at(name)), 1e-14) << keys << " " << name;
    }
  }
  EXPECT_EQ(testing::find_rule<WeightAverage>(run.session.rules())->num_updates(),
            static_cast<int64_t>(decays.size()) + 1);
}

TEST(WeightAverage, FollowsTheFormula) {
  expect_average("decay: 0.6, warmup: false", {0.6, 0.6, 0.6});
  expect_average("decay: 0.9999", {2.0 / 11, 3.0 / 12, 4.0 / 13});
  expect_average("decay: 0.2", {2.0 / 11, 0.2, 0.2});
  expect_average("decay: 0.6, warmup: false, every: 2", {0.6, 0.6}, 2);
  expect_average("decay: 0.9999, every: 3", {2.0 / 11, 3.0 / 12}, 3);
}

TEST(WeightAverage, IsWrittenShortAsItsDecay) {
  const Recipe recipe = equality_recipe({"train.average=0.99"});
  EXPECT_EQ(recipe.train.average.value().decay, 0.99);
  EXPECT_TRUE(recipe.train.average.value().warmup);
  EXPECT_FALSE(equality_recipe({"train.average=none"}).train.average.has_value());
  EXPECT_THROW(equality_recipe({"train.average=1"}), ConfigError);
  EXPECT_THROW(equality_recipe({"train.average={every: 0}"}), ConfigError);
}

TEST(WeightAverage, LendsTheModelItsAveragesWithoutTouchingAWeight) {
  for (const char* shards : {"false", "true"}) {
    AveragedTraining run({std::string("parallel.shard_optimizer=") + shards}),
        other({std::string("parallel.shard_optimizer=") + shards});
    run.train(3);
    other.train(3);
    std::vector<void*> places;
    for (const Parameter& weight : run.session.parameters()) {
      places.push_back(weight.tensor.data_ptr());
    }
    const Tensors before = weights_in_use(run.session);
    {
      const auto averages = run.session.lend_weights();
      for (const auto& [name, average] : weights_in_use(run.session)) {
        EXPECT_FALSE(average.equal(before.at(name))) << name;
      }
    }
    for (size_t i = 0; i < places.size(); ++i) {
      EXPECT_EQ(run.session.parameters()[i].tensor.data_ptr(), places[i]);
    }
    run.train(2);
    other.train(2);
    EXPECT_EQ(state_digest(run.session, 0, 0, *run.grid.world),
              state_digest(other.session, 0, 0, *other.grid.world));
  }
}

TEST(WeightAverage, IsNotThereBeforeItsFirstUpdate) {
  const ScratchFolder scratch;
  AveragedTraining run({"train.average={decay: 0.6, every: 4}"});
  run.train(3);
  const Tensors weights = weights_in_use(run.session);
  {
    const auto averages = run.session.lend_weights();
    for (const auto& [name, weight] : weights_in_use(run.session)) {
      EXPECT_TRUE(weight.equal(weights.at(name))) << name;
    }
  }
  const std::string path = run.save(scratch.file("ckpt"));
  EXPECT_FALSE(has_averages(CheckpointReader(path).manifest()));
  AveragedTraining loaded;
  load_weights(path, weights_of(loaded.session.model()), *loaded.grid.world);
  for (const auto& [name, weight] : weights_in_use(loaded.session)) {
    EXPECT_TRUE(weight.equal(weights.at(name))) << name;
  }
}

TEST(WeightAverage, LeavesOutWhatGradientsDoNotTrain) {
  AveragedTraining run({kRouterBias, "optimizer.rules=[{match: '*.stem.*', freeze: true}]"});
  run.train(3);
  const Tensors state = tensors_of(run.session), raw = weights_in_use(run.session);
  const auto averages = run.session.lend_weights();
  int64_t num_own = 0;
  for (const auto& [name, weight] : weights_in_use(run.session)) {
    const bool is_own =
        name.find(".stem.") != name.npos || name.find("selection_bias") != name.npos;
    num_own += is_own ? 1 : 0;
    EXPECT_EQ(weight.equal(raw.at(name)), is_own) << name;
    EXPECT_EQ(state.contains(WeightAverage::kPrefix + name), !is_own) << name;
  }
  EXPECT_GE(num_own, 3);
}

TEST(WeightAverage, ASkippedStepIsNoUpdate) {
  AveragedTraining run;
  run.train(2);
  const Tensors before = tensors_of(run.session);
  bool is_bad = true;
  run.session.parameters()[0].tensor.register_hook([&is_bad](const torch::Tensor& gradient) {
    return is_bad ? gradient * std::numeric_limits<double>::quiet_NaN() : gradient;
  });
  EXPECT_FALSE(run.session.step({}).applied);
  EXPECT_EQ(testing::find_rule<WeightAverage>(run.session.rules())->num_updates(), 2);
  for (const auto& [name, value] : tensors_of(run.session)) {
    EXPECT_TRUE(value.equal(before.at(name))) << name;
  }
  is_bad = false;
  EXPECT_TRUE(run.session.step({}).applied);
  EXPECT_EQ(testing::find_rule<WeightAverage>(run.session.rules())->num_updates(), 3);
}

/// Steps of a run, with the averages in every checkpoint.
Overrides run_of(int64_t steps, const Overrides& more = {}) {
  return joined({kAverage, "optimizer={name: adamw, lr: 1e-2}", "checkpoint.every=never",
                 fmt::format("train.duration={}step", steps)},
                more);
}

RunEnd run_alone(const std::string& folder, const Recipe& recipe) {
  const StopSignals signals;
  RankGrid grid = testing::self_grid();
  return testing::train_run(recipe, folder, grid, signals);
}

/// Stopped after `stop` of six steps, and gone on with.
void expect_resumes_bit_by_bit(const Overrides& overrides, int64_t stop) {
  const ScratchFolder scratch;
  const Recipe recipe = equality_recipe(overrides);
  const Recipe stopped =
      equality_recipe(joined(overrides, {fmt::format("run.stop_after={}step", stop)}));
  const StopSignals signals;
  testing::run_grid(2, 1, [&](RankGrid& grid) {
    const auto train = [&](const std::string& name, const Recipe& own) {
      return testing::train_run(own, scratch.file(name), grid, signals);
    };
    const std::string straight = train("straight", recipe).digest;
    EXPECT_EQ(train("run", stopped).result.last_step, stop);
    EXPECT_EQ(train("run", recipe).digest, straight);
  });
  EXPECT_EQ(content_digest(CheckpointReader(resolve_checkpoint(scratch.file("run")))),
            content_digest(CheckpointReader(resolve_checkpoint(scratch.file("straight")))));
  const auto losses = [&](const char* run) {
    return testing::evaluations(scratch.file(run), "loss");
  };
  EXPECT_EQ(losses("run"), losses("straight"));
  EXPECT_EQ(losses("run").size(), 6u);
}

TEST(WeightAverageRanks, ResumesBitByBit) {
  // Before the first update, at one, and between two.
  for (const int64_t stop : {1, 2, 3}) {
    for (const char* shards : {"false", "true"}) {
      expect_resumes_bit_by_bit(
          run_of(6, {"train.average={decay: 0.6, every: 2}", "evaluate.every=1step",
                     std::string("parallel.shard_optimizer=") + shards}),
          stop);
    }
  }
}

// Steps 0 to 3 mix softly: a stop among them, at their end and behind it. Noise is that of a
// sample's place, in training and in evaluations.
TEST(WeightAverageRanks, OfADenoiserResumesBitByBit) {
  const Overrides overrides =
      run_of(6, joined(testing::denoiser("mixing: hard, soft_steps: 4, losses: [{name: switch, "
                                         "weight: 0.1}]"),
                       {"train.average={decay: 0.6, every: 2}", "evaluate.every=1step",
                        "task.most_sigma=0.4", "train.accumulate=2"}));
  for (const int64_t stop : {3, 4, 5}) expect_resumes_bit_by_bit(overrides, stop);
}

/// Averages and weights of all ranks by name after a few steps.
Tensors trained_on(int64_t expert_ranks, int64_t replicas, const std::string& shards,
                   const std::string& ckpt = "", const Overrides& model = {}) {
  const Recipe recipe = equality_recipe(
      run_of(5, joined(model, {"parallel.shard_optimizer=" + shards,
                               fmt::format("parallel.expert_ranks={}", expert_ranks)})));
  Tensors all;
  std::mutex mutex;
  testing::run_grid(expert_ranks, replicas, [&](RankGrid& grid) {
    const auto data = open_split(make_source(recipe), Split::kTrain);
    Session session(recipe, testing::model_on(recipe, data, grid), data, grid);
    testing::fill_parameters(session.task());  // behind a head of zeros gradients would be zero
    for (int64_t step = 0; step < 5; ++step) session.step({});
    const Tensors own = tensors_of(session);  // collective
    {
      const std::lock_guard lock(mutex);
      for (const auto& [name, value] : own) {
        const auto [place, is_new] = all.emplace(name, value);
        EXPECT_TRUE(is_new || place->second.equal(value)) << name;
      }
    }
    if (ckpt.empty()) return;
    CheckpointWriter::Options options;
    options.folder = ckpt;
    PosixFileSystem files;
    CheckpointWriter(options, *grid.world, files)
        .save(session, {session.steps_done(), session.samples_done(), {}});
  });
  return all;
}

TEST(WeightAverageRanks, IsThatOfOneRankOnEveryRankGrid) {
  const Tensors expected = trained_on(1, 1, "false");
  int64_t num_averages = 0;
  for (const auto& [expert_ranks, replicas] :
       std::vector<std::pair<int64_t, int64_t>>{{2, 1}, {1, 2}, {2, 2}}) {
    for (const char* shards : {"false", "true"}) {
      const Tensors actual = trained_on(expert_ranks, replicas, shards);
      EXPECT_EQ(actual.size(), expected.size());
      for (const auto& [name, value] : expected) {
        if (!name.starts_with(WeightAverage::kPrefix)) continue;
        ++num_averages;
        EXPECT_LE(largest_difference(actual.at(name), value), 1e-12) << name;
      }
    }
  }
  EXPECT_GT(num_averages, 100);
}

/// A checkpoint of this many ranks is the same state on one.
void expect_moves_to_one_rank(int64_t expert_ranks, int64_t replicas, const Overrides& model) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch.file("ckpt"));
  const Tensors saved = trained_on(expert_ranks, replicas, "true", scratch.file("ckpt"), model);
  AveragedTraining alone(joined(model, {"optimizer={name: adamw, lr: 1e-2}"}));
  const LoadedCheckpoint loaded =
      load_checkpoint(resolve_checkpoint(scratch.file("ckpt")), alone.session, *alone.grid.world);
  EXPECT_EQ(
      state_digest(alone.session, loaded.manifest.step, loaded.manifest.samples, *alone.grid.world),
      content_digest(CheckpointReader(loaded.path)));
  EXPECT_EQ(testing::find_rule<WeightAverage>(alone.session.rules())->num_updates(), 5);
  for (const auto& [name, value] : tensors_of(alone.session)) {
    EXPECT_TRUE(value.equal(saved.at(name))) << name;
  }
}

TEST(WeightAverageRanks, MovesFromFourRanksToOne) { expect_moves_to_one_rank(2, 2, {}); }

// The three attention experts of a layer are each on a rank of its own, or two of them share one.
TEST(WeightAverageRanks, OfADenoiserMovesToOneRank) {
  for (const int64_t expert_ranks : {2, 3}) {
    expect_moves_to_one_rank(expert_ranks, 1, testing::denoiser("mixing: hard"));
  }
  expect_moves_to_one_rank(3, 1, testing::denoiser("mixing: hard_shared_kv"));
}

double loss_of(const std::string& checkpoint, const Recipe& recipe, bool raw_weights) {
  RankGrid grid = testing::self_grid();
  const auto data = open_split(make_source(recipe), Split::kValid);
  const BuiltModel model = build_model(recipe, data.source->shape(), {&grid, torch::kCPU});
  load_weights(checkpoint, weights_of(model), *grid.world, raw_weights);
  return evaluate({*model.task, recipe, data, grid}, /*step=*/6).value("loss");
}

TEST(WeightAverage, IsWhatEvaluationsUse) {
  for (const Overrides& model :
       {Overrides{}, Overrides{"train.precision=bfloat16"},
        Overrides{"train.recompute=true", "parallel.shard_optimizer=true", kRouterBias},
        testing::gpt2(), testing::gpt2(testing::kBlockExperts)}) {
    const ScratchFolder scratch;
    const Recipe recipe = equality_recipe(run_of(6, joined(model, {"evaluate.every=2step"})));
    const bool is_text = recipe.task.name() == "lm";
    run_alone(scratch.file("run"), recipe);
    const std::string newest = resolve_checkpoint(scratch.file("run"));
    const double logged = testing::evaluations(scratch.file("run"), "loss").at(6);
    EXPECT_EQ(loss_of(newest, recipe, /*raw_weights=*/false), logged);
    EXPECT_NE(loss_of(newest, recipe, /*raw_weights=*/true), logged);
    const std::string best = resolve_checkpoint(scratch.file("run"), /*best=*/true);
    const Manifest manifest = CheckpointReader(best).manifest();
    const auto scores = testing::evaluations(scratch.file("run"), is_text ? "perplexity" : "top1");
    EXPECT_EQ(manifest.score.value(), (is_text ? -1 : 1) * scores.at(manifest.step));
  }
}

/// What refuses to resume `saved` by `now`.
std::string refusal(const Overrides& saved, const Overrides& now, bool override_fixed) {
  const ScratchFolder scratch;
  run_alone(scratch.file("run"), equality_recipe(joined(saved, {"train.duration=3step"})));
  RankGrid grid = testing::self_grid();
  const Recipe recipe = equality_recipe(now);
  const auto data = open_split(make_source(recipe), Split::kTrain);
  Session session(recipe, testing::model_on(recipe, data, grid), data, grid);
  RunFolder folder{scratch.file("run")};
  folder.resume = true;
  Log log("", 0, nullptr);
  try {
    begin_or_resume(session, recipe, folder, {.override_fixed = override_fixed, .log = log});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kMismatch);
    return error.what();
  }
  return "none";
}

TEST(WeightAverage, MayNeitherComeNorGoOnResume) {
  EXPECT_THAT(refusal({}, {kAverage}, false),
              AllOf(HasSubstr("train.average"), HasSubstr("checkpoint: none")));
  EXPECT_THAT(refusal({kAverage}, {}, false),
              AllOf(HasSubstr("train.average"), HasSubstr("recipe: none")));
  EXPECT_THAT(refusal({}, {kAverage}, true), HasSubstr("'average.backbone."));
  EXPECT_THAT(refusal({kAverage}, {}, true), HasSubstr("'average.backbone."));
  EXPECT_EQ(refusal({kAverage}, {kAverage}, false), "none");
}

TEST(WeightAverage, IsWhatModelsStartFrom) {
  const ScratchFolder scratch;
  AveragedTraining trained;
  trained.train(3);
  const std::string from = "from: " + trained.save(scratch.file("ckpt"));
  const Tensors state = tensors_of(trained.session);
  for (const std::string some : {"", ", take: [\"*\"], rename: {backbone.: backbone.}"}) {
    for (const bool raw : {false, true}) {
      AveragedTraining started(
          {"run.seed=2",
           fmt::format("model.init_from={{{}{}, raw_weights: {}}}", from, some, raw)});
      const std::string report = load_initial_weights(started.session, started.recipe);
      EXPECT_EQ(report.find(" (averaged weights)") != report.npos, !raw) << report;
      for (const auto& [name, weight] : weights_in_use(started.session)) {
        EXPECT_TRUE(weight.equal(state.at((raw ? "" : WeightAverage::kPrefix) + name))) << name;
      }
      EXPECT_EQ(testing::find_rule<WeightAverage>(started.session.rules())->num_updates(), 0);
    }
  }
}

TEST(WeightAverage, IsWhatUpcyclingCopies) {
  const ScratchFolder scratch;
  const std::string vit = "backbone: vit, patch: 4, width: 8, depth: 2, heads: 2, hidden: 12";
  AveragedTraining dense({"model={" + vit + "}"});
  dense.train(3);
  const std::string from = dense.save(scratch.file("ckpt"));
  const Tensors state = tensors_of(dense.session);
  for (const bool raw : {false, true}) {
    AveragedTraining started(
        {fmt::format("model={{{}, moe: {{router: {{name: top_k, k: 2, weights: {{normalise: "
                     "topk_softmax}}}}, experts: {{count: 4, hidden: 12}}}}, upcycle: true, "
                     "init_from: {{from: {}, raw_weights: {}}}}}",
                     vit, from, raw)});
    load_initial_weights(started.session, started.recipe);
    const Tensors now = weights_in_use(started.session);
    const std::string prefix = raw ? "" : WeightAverage::kPrefix;
    for (const char* name : {"head.weight", "backbone.blocks.0.mlp.fc1.weight"}) {
      EXPECT_TRUE(now.at(name).equal(state.at(prefix + name))) << name;
    }
    EXPECT_TRUE(now.at("backbone.blocks.1.moe.experts.3.fc1.weight")
                    .equal(state.at(prefix + "backbone.blocks.1.mlp.fc1.weight").t()));
  }
}

TEST(WeightAverage, IsWhatExportWrites) {
  const ScratchFolder scratch;
  AveragedTraining trained(testing::gpt2());
  trained.train(3);
  const std::string path = trained.save(scratch.file("ckpt"));
  const Tensors state = tensors_of(trained.session);
  for (const bool raw : {false, true}) {
    const ExportArguments arguments{
        {.path = path, .raw_weights = raw}, "hf", scratch.file(raw ? "raw" : "averaged")};
    std::ostringstream out;
    export_weights(arguments, out);
    const ForeignWeights weights(arguments.out);
    int64_t num_compared = 0;
    for (const auto& [name, tensor] : weights.tensors()) {
      if (!name.ends_with("wte.weight")) continue;
      ++num_compared;
      const std::string ours = std::string(raw ? "" : WeightAverage::kPrefix) + "backbone.tokens";
      EXPECT_TRUE(weights.read(tensor).equal(state.at(ours)));
    }
    EXPECT_EQ(num_compared, 1);
  }
}

TEST(WeightAverage, IsCountedByCheck) {
  const auto check = [](const Overrides& overrides) {
    return check_recipe({"", overrides, {}, testing::kEqualityRecipe}, config::UnsetVariable::kKeep,
                        std::nullopt);
  };
  const CheckedRecipe with = check({kAverage}), without = check({});
  EXPECT_GE(with.counts.checkpoint.data_bytes,
            without.counts.checkpoint.data_bytes + 8 * without.counts.parameters);
  EXPECT_THAT(recipe_notes(with), ::testing::Contains(HasSubstr("train.average: ")));
}

}  // namespace
}  // namespace shoal
