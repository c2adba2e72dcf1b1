#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/data/open_split.h"
#include "launch/model/build_model.h"
#include "launch/recipe/recipe.h"
#include "launch/step/step_rules.h"
#include "models/task.h"
#include "moe/moe_stats.h"
#include "parallel/comm/rank_grid.h"
#include "parallel/gradients/gradient_norm.h"
#include "parallel/gradients/gradient_sync.h"
#include "parallel/gradients/layer_norms.h"
#include "parallel/gradients/optimizer_shards.h"
#include "parallel/gradients/step_control.h"
#include "runtime/data/loader/loader.h"
#include "runtime/module/state.h"
#include "runtime/optim/optimizer.h"
#include "runtime/optim/schedule.h"

namespace shoal {

/// Outcome of one optimizer step on this rank; reduce() sums loss and statistics over ranks.
struct StepOutcome {
  bool applied = true;     ///< false: skipped, since the loss or some gradient was not finite
  std::string not_finite;  ///< what made the step be skipped: `the loss`, `the gradient of X`
  double lr = 0.0;
  /// Global L2 gradient norm before clipping, for any clip_norm_type; counts each parameter once.
  double grad_norm = 0.0;
  torch::Tensor loss;         ///< float64 scalar, this rank's share, on the model's device
  std::vector<MoeStats> moe;  ///< one entry per MoE layer
  /// Over all ranks, gradients before clipping. Empty unless agreed.log_layers and applied.
  std::vector<LayerNorms> layers;
  double data_wait_seconds = 0.0;
  StepFlags agreed;  ///< requests of all ranks: to stop, evaluate, save or log
};

/// Loss and expert statistics of a step over all ranks.
struct StepReport {
  double loss = 0.0;
  std::vector<MoeReport> moe;
  /// Share of the model's training FLOPs that was computed since the last report; dropped choices
  /// (token-expert assignments) are not computed. reduce() returns 1, Trainer sets the share.
  double computed_share = 1.0;
};

/// Sums loss and statistics over all ranks. Collective: one all-reduce. Waits for the GPU.
StepReport reduce(const StepOutcome& outcome, Communicator& world);

/// Best score of a training's evaluations, and how many followed without a better one.
struct ScoreTrend {
  double best = 0.0;           ///< larger is better; unspecified while best_step is 0
  int64_t best_step = 0;       ///< 0: no score was finite yet
  int64_t last_step = 0;       ///< of the evaluation that was counted last
  int64_t without_better = 0;  ///< evaluations since the best
};

/// A training in memory: model, data loader, gradient sync, optimizer, schedule and step rules,
/// which is all that an optimizer step needs and a checkpoint holds. The caller writes files.
///
/// Equal recipes and data give equal results on any rank grid (expert ranks x replicas). While
/// train.duration is a time, a session has total_steps() for trials alone: more than they make.
class Session : public Stateful {
 public:
  /// Trains `model`, which is built for the recipe, the data and the grid. Recipe, data and grid
  /// must outlive the session. `make_rules` makes the rules that a step applies beside the
  /// optimizer. Collective. Throws ConfigError, DataError.
  Session(const Recipe& recipe, BuiltModel model, const OpenSplit& train_data, RankGrid& grid,
          const StepRuleFactory& make_rules = make_step_rules);

  /// Makes one optimizer step, which is skipped if the loss or a gradient is not finite: then
  /// nothing but counters changes. `own`: this rank's requests, such as to stop. Collective.
  StepOutcome step(StepFlags own);
  /// Returns what the ranks agree on between steps. Collective.
  StepFlags agree(const StepFlags& own) { return control_.agree(own); }

  /// Number of steps made, with skipped ones and those before a resume: a training's progress.
  int64_t steps_done() const { return step_; }
  int64_t total_steps() const { return scale_.total_steps; }
  /// Number of samples that all ranks together have taken: the data cursor.
  int64_t samples_done() const { return loader_.cursor(); }
  /// Number of consecutive skipped steps, whose loss or a gradient was not finite.
  int64_t nonfinite_in_row() const { return nonfinite_in_row_; }
  /// Counts the score of an evaluation at steps_done(), for train.patience, unless it is counted.
  void add_score(double score);
  /// Counts scores anew, as they no longer compare with those before.
  void forget_scores() { scores_ = {}; }
  const ScoreTrend& scores() const { return scores_; }
  bool is_out_of_patience() const {
    return recipe_.train.patience && scores_.without_better >= *recipe_.train.patience;
  }
  /// True if no step is left, or the last train.patience evaluations brought no better score.
  bool is_finished() const { return step_ >= total_steps() || is_out_of_patience(); }
  /// Number of all skipped steps, including those before a resume.
  int64_t skipped_steps() const { return skipped_steps_; }
  const StepScale& scale() const { return scale_; }
  Task& task() const { return *model_.task; }
  const BuiltModel& model() const { return model_; }
  const std::vector<Parameter>& parameters() const { return model_.parameters; }
  RankGrid& grid() const { return grid_; }
  /// The part of a step that runs, for messages: `forward pass`.
  const char* phase() const { return phase_; }
  /// Call before using values copied from a GPU: throws CommError if a collective has failed.
  void throw_if_failed() const { control_.throw_if_failed(); }
  /// Seconds that this rank has waited for exchanges between expert ranks. Unset on a GPU, where
  /// the host does not wait and the GPU's waiting is not measured.
  std::optional<double> exchange_wait_seconds() const;

  void visit_state(StateVisitor& visitor) override;
  void fit_to(const SavedNames& saved) override;
  void tensors_loaded() override;
  /// Call after loading weights without other state: step rules then apply their masks to them.
  void weights_loaded();
  /// Puts other weights in the place of the model's for an evaluation, such as their averages,
  /// until all of the returned handles are released.
  std::vector<std::shared_ptr<void>> lend_weights() const;
  const OpenSplit& train_data() const { return train_data_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  /// Null unless parallel.shard_optimizer.
  const OptimizerShards* shards() const { return shards_.get(); }
  const StepRules& rules() const { return rules_; }

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
  GradientShare share_;  ///< the gradients whose norm this rank computes
  /// Tensors that change before the gradients are known (buffers, StepRule::moved_weights), and
  /// their old values. Skipped steps restore all, others the first num_frozen_: frozen buffers.
  std::vector<torch::Tensor> moving_, saved_;
  size_t num_frozen_ = 0;
  StepScale scale_;
  std::shared_ptr<Schedule> schedule_;
  StepControl control_;
  StepRules rules_;
  const char* phase_ = "start of the first step";
  int64_t step_ = 0;
  int64_t nonfinite_in_row_ = 0;
  int64_t skipped_steps_ = 0;
  ScoreTrend scores_;
};

}  // namespace shoal
