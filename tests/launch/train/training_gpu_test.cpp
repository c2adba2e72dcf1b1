#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "launch/data/recipe_source.h"
#include "launch/evaluate/evaluation.h"
#include "launch/step/session.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/checkpoint_load.h"
#include "parallel/checkpoint/state_list.h"
#include "runtime/files/file_system.h"
#include "sparse/sparse_model.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/gpu_probe.h"
#include "tests/support/model_on.h"
#include "tests/support/on_gpu.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"

namespace shoal::testing {
namespace {

using Overrides = std::vector<std::string>;

/// A session of one rank on a device.
struct Training {
  Training(const Overrides& overrides, c10::Device device)
      : recipe(equality_recipe(overrides)),
        grid(on(device)),
        train_data(open_split(make_source(recipe), Split::kTrain)),
        valid_data(open_split(make_source(recipe), Split::kValid)),
        session(recipe, model_on(recipe, train_data, grid), train_data, grid) {}

  static RankGrid on(c10::Device device) {
    RankGrid grid = self_grid();
    grid.device = device;
    return grid;
  }
  std::string digest() {
    return state_digest(session, session.steps_done(), session.samples_done(), *grid.world);
  }

  Recipe recipe;
  RankGrid grid;
  OpenSplit train_data, valid_data;
  Session session;
};

/// What a training says of itself, step by step.
struct Curve {
  std::vector<double> losses, grad_norms;
  std::vector<std::vector<int64_t>> loads;  ///< of each step and layer: choices of each unit
  double eval_loss = 0.0;
  int64_t num_by_kernels = 0;  ///< sparse layers
};

Curve curve_of(const Overrides& overrides, int64_t num_steps, c10::Device device) {
  Training training(overrides, device);
  Curve curve;
  for (int64_t step = 0; step < num_steps; ++step) {
    const StepOutcome outcome = training.session.step({});
    const StepReport report = reduce(outcome, *training.grid.world);
    curve.losses.push_back(report.loss);
    curve.grad_norms.push_back(outcome.grad_norm);
    for (const MoeReport& layer : report.moe) curve.loads.push_back(layer.load_U);
  }
  curve.eval_loss =
      evaluate({training.session.task(), training.recipe, training.valid_data, training.grid},
               num_steps)
          .value("loss");
  if (const auto& sparse = training.session.model().sparse) {
    curve.num_by_kernels = sparse->masks().run_by_kernels();
  }
  return curve;
}

void expect_near(const std::vector<double>& expected, const std::vector<double>& found,
                 double tolerance) {
  ASSERT_EQ(expected.size(), found.size());
  for (size_t step = 0; step < expected.size(); ++step) {
    EXPECT_NEAR(found[step], expected[step], tolerance * std::abs(expected[step])) << step;
  }
}

std::vector<std::pair<std::string, Overrides>> models() {
  return {{"SparseMlp", noisy()},
          {"SparseMlpCapped", capped("batch_priority")},
          {"SparseMlpPaddedAccumulated", joined(padded(), accumulated())},
          {"Vit", {vit(kBlockExperts)}},
          {"ConvNextNexus", {convnext(kBlockNexus)}},
          {"Gpt2WithExperts", gpt2(kBlockExperts)},
          {"ModernDecoder", gpt2(kModernDecoder)},
          {"Hspmn", with_hspmn(text_data(), "rate: 0.4, temperature: learned", kBlockExperts)},
          {"DenoiserSoft", denoiser("losses: [{name: kl_uniform, weight: 0.1}]")},
          {"DenoiserHard", denoiser("mixing: hard")}};
}

/// Besides, sparse layers, whose kernels do not compute in bfloat16.
std::vector<std::pair<std::string, Overrides>> models_without_bfloat16() {
  auto all = models();
  all.emplace_back("SparseRowsByKernels", Overrides{sparse_by_kernels("unstructured", "set")});
  all.emplace_back("SparseDiagonalsByKernels", Overrides{sparse_by_kernels("diagonal", "set")});
  return all;
}

class TrainingGpu : public OnGpu {};

// In float64 both make the same choices, since they have the same scores.
TEST_F(TrainingGpu, ComputesWhatTheCpuDoes) {
  for (const auto& [name, overrides] : models_without_bfloat16()) {
    for (const auto& [kind, optimizer] : equality_optimizers()) {
      SCOPED_TRACE(name + " " + kind);
      const Overrides all = joined(overrides, {optimizer, kClip});
      const Curve expected = curve_of(all, 5, torch::kCPU), found = curve_of(all, 5, gpu_);
      EXPECT_EQ(found.loads, expected.loads);
      EXPECT_EQ(found.num_by_kernels,
                name.starts_with("Sparse") && name.ends_with("Kernels") ? 5 : 0);
      expect_near(expected.losses, found.losses, 1e-9);
      expect_near(expected.grad_norms, found.grad_norms, 1e-8);
      EXPECT_NEAR(found.eval_loss, expected.eval_loss, 1e-8);
    }
  }
}

TEST_F(TrainingGpu, FollowsTheCpuInFloat32) {
  constexpr int64_t kSteps = 20;
  for (const auto& [name, overrides] : models_without_bfloat16()) {
    SCOPED_TRACE(name);
    const Overrides all =
        joined(overrides, {"train.precision=float32", "optimizer={name: adamw, lr: 1e-3}"});
    const Curve expected = curve_of(all, kSteps, torch::kCPU), found = curve_of(all, kSteps, gpu_);
    // Before weights differ, so do no choices.
    const size_t num_layers = expected.loads.size() / kSteps;
    for (size_t layer = 0; layer < num_layers; ++layer) {
      EXPECT_EQ(found.loads[layer], expected.loads[layer]);
    }
    expect_near(expected.losses, found.losses, 1e-3);
  }
}

TEST_F(TrainingGpu, StepsTheSameWithEverySwitchForSpeed) {
  const Overrides how{"train.recompute=true", "parallel.shard_optimizer=true"};
  const Curve expected = curve_of({}, 5, gpu_), found = curve_of(how, 5, gpu_);
  EXPECT_EQ(found.loads, expected.loads);
  expect_near(expected.losses, found.losses, 1e-9);
}

TEST_F(TrainingGpu, CheckpointsLoadOnTheCpuAndBack) {
  const Overrides overrides{"optimizer={name: lamb, lr: 1e-2}"};
  ScratchFolder scratch;
  PosixFileSystem files;
  Training on_gpu(overrides, gpu_), on_cpu(overrides, torch::kCPU), again(overrides, gpu_);
  for (int64_t step = 0; step < 3; ++step) on_gpu.session.step({});
  const auto save = [&](Training& training, const std::string& folder) {
    CheckpointWriter::Options options;
    options.folder = scratch.file(folder);
    std::filesystem::create_directories(options.folder);
    CheckpointWriter writer(options, *training.grid.world, files);
    const Session& session = training.session;
    return writer
        .save(training.session, {session.steps_done(), session.samples_done(), std::nullopt})
        .path;
  };
  load_checkpoint(save(on_gpu, "gpu"), on_cpu.session, *on_cpu.grid.world);
  EXPECT_EQ(on_cpu.digest(), on_gpu.digest());
  EXPECT_NEAR(reduce(on_cpu.session.step({}), *on_cpu.grid.world).loss,
              reduce(on_gpu.session.step({}), *on_gpu.grid.world).loss, 1e-9);
  load_checkpoint(save(on_cpu, "cpu"), again.session, *again.grid.world);
  EXPECT_EQ(again.digest(), on_cpu.digest());
}

// Numbers of rows, which gates wait for and experts that have no grouped product, are copied by
// HostCopy: LibTorch does not count that wait.
TEST_F(TrainingGpu, MakesTheHostWaitNowhereButForCounts) {
  const GpuProbe probe;
  for (const auto& [name, overrides] : models_without_bfloat16()) {
    SCOPED_TRACE(name);
    Training training(overrides, gpu_);
    training.session.step({});  // what is made at first use
    TrainLoader loader(*training.train_data.samples,
                       loader_settings(training.recipe, training.train_data, training.grid));
    const Batch batch = loader.next();
    probe.refuse_waits([&] { training.session.task().train(batch).loss.backward(); });
  }
}

// One for the gradients' norm, one for what is logged, one for the open tokens of each gate, and
// one in each MoE layer whose experts LibTorch has no grouped product for, as it has in bfloat16 on
// GPUs of compute capability 9 and 10.
TEST_F(TrainingGpu, WaitsOnceAStepAndALayerAtMost) {
  const GpuProbe probe;
  for (const auto& [name, overrides] : models()) {
    for (const std::string precision : {"float32", "bfloat16"}) {
      SCOPED_TRACE(name + " " + precision);
      Training training(joined(overrides, {"train.precision=" + precision, kClip}), gpu_);
      reduce(training.session.step({}), *training.grid.world);  // what is made at first use
      StepOutcome outcome;
      const int64_t in_step = probe.count_waits([&] { outcome = training.session.step({}); });
      const int64_t in_log = probe.count_waits([&] { reduce(outcome, *training.grid.world); });
      const auto layers =
          static_cast<int64_t>(outcome.moe.size()) * training.recipe.train.accumulate;
      std::cout << fmt::format("{} {}: {} waits a step of {} MoE layers, {} a log entry\n", name,
                               precision, in_step, layers, in_log);
      // Slots of a Nexus layer are as many for every unit; in soft mixing all tokens go to all.
      // Attention experts read their counts in any precision.
      const bool knows_rows = name == "ConvNextNexus" || name == "DenoiserSoft" ||
                              (precision == "bfloat16" && name != "DenoiserHard");
      const int64_t gates = name == "Hspmn" ? 2 : 0;
      EXPECT_EQ(in_step, 1 + gates + (knows_rows ? 0 : layers));
      EXPECT_EQ(in_log, 1);
    }
  }
}

}  // namespace
}  // namespace shoal::testing
