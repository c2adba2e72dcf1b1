#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/data/open_split.h"
#include "launch/model/build_model.h"
#include "launch/recipe/recipe.h"
#include "models/task.h"
#include "parallel/comm/rank_grid.h"
#include "parallel/gradients/gradient_norm.h"
#include "parallel/gradients/gradient_sync.h"
#include "parallel/gradients/optimizer_shards.h"
#include "parallel/gradients/step_control.h"
#include "parallel/gradients/step_rule.h"
#include "parallel/gradients/weight_average.h"
#include "runtime/data/loader/loader.h"
#include "runtime/module/state.h"
#include "runtime/optim/optimizer.h"
#include "runtime/optim/schedule.h"
#include "sparse/training/prune_grow.h"

namespace shoal {

/// What one optimizer step did. Values of this rank; reduce() adds up what ranks share.
struct StepOutcome {
  int64_t step = 0;     ///< steps done, this one included
  bool applied = true;  ///< false: skipped, since the loss or some gradient was not finite
  /// Set for a skipped step: what was not finite, `the loss` or `the gradient of X`.
  std::string not_finite;
  double lr = 0.0;
  /// L2 whatever train.clip_norm_type; before clipping, over all ranks, each parameter once.
  double grad_norm = 0.0;
  torch::Tensor loss;  ///< float64 scalar, this rank's share, where the model is
  std::vector<MoeStats> moe;
  double data_wait_seconds = 0.0;
  StepFlags agreed;
};

/// Loss and expert statistics of a step over all ranks.
struct StepReport {
  double loss = 0.0;
  std::vector<MoeReport> moe;
  /// Computed share of the model's training FLOPs since the last report, without dropped choices
  /// (ComputedWork).
  double computed_share = 1.0;
};

/// Collective: one all-reduce. Waits for the GPU.
StepReport reduce(const StepOutcome& outcome, Communicator& world);

/// Makes the rules of a training's steps for its model.
using StepRuleFactory = std::function<std::vector<std::unique_ptr<StepRule>>(const BuiltModel&)>;

/// A recipe in training, without files: all that an optimizer step needs and a checkpoint holds.
///
/// Equal recipes and data give equal results on any rank grid.
class Session : public Stateful {
 public:
  /// On the grid's device. Recipe, data and grid must outlive the session. `unit_load`: as
  /// build_model's. Collective.
  /// Throws ConfigError, DataError.
  Session(const Recipe& recipe, const OpenSplit& train_data, RankGrid& grid,
          const UnitLoads& unit_load = {}, const StepRuleFactory& make_rules = {});

  /// One optimizer step, which is skipped if the loss or a gradient is not finite: then counters
  /// change alone. `own` is what this rank asks of the others. Collective.
  StepOutcome step(StepFlags own);
  /// What the ranks agree on between steps. Collective.
  StepFlags agree(const StepFlags& own) { return control_.agree(own); }

  int64_t steps_done() const { return step_; }
  int64_t total_steps() const { return scale_.total_steps; }
  /// Samples that all ranks together have taken: the data cursor.
  int64_t samples_done() const { return loader_.cursor(); }
  /// Consecutive steps that were skipped, since the loss or a gradient was not finite.
  int64_t nonfinite_in_row() const { return nonfinite_in_row_; }
  /// All steps that were skipped, before a resume as well.
  int64_t skipped_steps() const { return skipped_steps_; }
  const StepScale& scale() const { return scale_; }
  Task& task() const { return *model_.task; }
  const BuiltModel& model() const { return model_; }
  const std::vector<Parameter>& parameters() const { return model_.parameters; }
  RankGrid& grid() const { return grid_; }
  /// What a step is at, for messages: `forward pass`.
  const char* phase() const { return phase_; }
  /// Throws CommError if ranks have lost each other: then what the host reads is not to be used.
  void throw_if_failed() const { control_.throw_if_failed(); }
  /// Time this rank has spent waiting for exchanges between expert ranks. Nothing on a GPU: its
  /// host waits for none of them, and the GPU's own waiting is not measured.
  std::optional<double> exchange_wait_seconds() const;

  void visit_state(StateVisitor& visitor) override;
  void fit_to(const SavedNames& saved) override;
  void tensors_loaded() override;
  /// After weights alone were loaded: rules that keep them within masks do so.
  void weights_loaded();
  const OpenSplit& train_data() const { return train_data_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  /// Null unless parallel.shard_optimizer.
  const OptimizerShards* shards() const { return shards_.get(); }
  /// Averages of the weights, for AveragedWeights. Null unless train.average.
  const WeightAverage* average() const { return average_; }
  /// The sparse layers and their masks. Null unless sparsity.
  PruneGrow* prune_grow() const { return prune_grow_; }

 private:
  void run_micro_steps(StepOutcome& outcome);
  void save_moving_state();
  void restore_moving_state(size_t count);
  void update(const StepOutcome& outcome, StepTensors& tensors);
  std::string find_nonfinite(const StepOutcome& outcome, const GradientStats& stats) const;
  void clip(double l2_norm);

  const Recipe& recipe_;
  const OpenSplit& train_data_;
  RankGrid& grid_;
  BuiltModel model_;
  TrainLoader loader_;
  GradientSync sync_;
  std::unique_ptr<OptimizerShards> shards_;  ///< null unless parallel.shard_optimizer
  std::shared_ptr<Optimizer> optimizer_;
  GradientShare share_;  ///< of the gradients: what this rank measures
  /// What moves before the gradients are known, buffers and weights of a key encoder, with the
  /// values before the step. The first num_frozen_ are buffers that optimizer.rules freeze.
  std::vector<torch::Tensor> moving_, saved_;
  size_t num_frozen_ = 0;
  StepScale scale_;
  std::vector<std::unique_ptr<StepRule>> rules_;
  PruneGrow* prune_grow_ = nullptr;         ///< one of the rules; null unless sparsity
  const WeightAverage* average_ = nullptr;  ///< the last of the rules; null unless train.average
  std::shared_ptr<Schedule> schedule_;
  StepControl control_;
  const char* phase_ = "start of the first step";
  int64_t step_ = 0;
  int64_t nonfinite_in_row_ = 0;
  int64_t skipped_steps_ = 0;
};

}  // namespace shoal
