#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/job/recipe.h"
#include "models/task.h"
#include "parallel/comm/rank_grid.h"
#include "parallel/gradients/gradient_norm.h"
#include "parallel/gradients/gradient_sync.h"
#include "parallel/gradients/optimizer_shards.h"
#include "parallel/gradients/step_control.h"
#include "runtime/data/loader.h"
#include "runtime/module/state.h"
#include "runtime/optim/optimizer.h"
#include "runtime/optim/schedule.h"

namespace shoal {

/// A model built from a recipe, its parameters filled from the recipe's seed.
struct BuiltModel {
  std::shared_ptr<Backbone> backbone;
  std::shared_ptr<Task> task;         ///< owns the backbone
  std::vector<Parameter> parameters;  ///< of the task, in registration order
  std::vector<Parameter> buffers;     ///< saved with them, and not trained by gradients
};

/// Throws ConfigError (exit 11) that names a stage with more units than a device of this kind can
/// route to.
void check_units(const Backbone& backbone, torch::Device device);

/// Builds backbone and task. On `device` meta nothing is allocated or filled, and `grid` may be
/// null. `unit_load`: for parallel.placement by_load. Throws ConfigError, also as check_units.
BuiltModel build_model(const Recipe& recipe, RankGrid* grid, torch::Device device,
                       const UnitLoads& unit_load = {});

/// Saves or loads every parameter and buffer in place.
void visit_weights(const BuiltModel& model, StateVisitor& visitor);
int64_t count_elements(const std::vector<Parameter>& parameters);

/// What weights, gradients and all state are in, as train.precision says: float32 or float64.
torch::Dtype dtype_of(const Recipe& recipe);

/// The recipe's data source, no file of which is open yet.
std::shared_ptr<DataSource> make_source(const Recipe& recipe);
ImageShape image_shape_of(const Recipe& recipe);
LoaderSettings loader_settings(const Recipe& recipe, const RankGrid& grid);

/// What one optimizer step did. Values of this rank; reduce() adds up what ranks share.
struct StepOutcome {
  int64_t step = 0;        ///< steps done, this one included
  bool applied = true;     ///< false: skipped, since some gradient was not finite
  std::string bad_tensor;  ///< of a skipped step: the first tensor with a non-finite gradient
  double lr = 0.0;
  double grad_norm = 0.0;  ///< before clipping, over all ranks, each parameter once
  torch::Tensor loss;      ///< float64 scalar, this rank's share, where the model is
  std::vector<MoeStats> moe;
  double data_wait_seconds = 0.0;
  StepFlags agreed;
};

/// Loss and expert statistics of a step over all ranks.
struct StepReport {
  double loss = 0.0;
  std::vector<MoeReport> moe;
};

/// Collective: one all-reduce. Waits for the GPU.
StepReport reduce(const StepOutcome& outcome, Communicator& world);

/// A recipe in training, without files: all that an optimizer step needs and a checkpoint holds.
///
/// Equal recipes and data give equal results on any rank grid.
class Session : public Stateful {
 public:
  /// On the grid's device. Recipe, data and grid must outlive the session. `unit_load`: as
  /// build_model's. Collective.
  /// Throws ConfigError, DataError.
  Session(const Recipe& recipe, const SampleSet& train_data, RankGrid& grid,
          const UnitLoads& unit_load = {});

  /// One optimizer step. `own` is what this rank asks of the others; non-finite gradients are
  /// added here. Collective.
  StepOutcome step(StepFlags own);

  int64_t steps_done() const { return step_; }
  int64_t total_steps() const { return scale_.total_steps; }
  /// Samples that all ranks together have taken: the data cursor.
  int64_t samples_done() const { return loader_.cursor(); }
  /// Consecutive steps that were skipped for non-finite gradients.
  int64_t nonfinite_in_row() const { return nonfinite_in_row_; }
  /// All steps that were skipped, before a resume as well.
  int64_t skipped_steps() const { return skipped_steps_; }
  const StepScale& scale() const { return scale_; }
  Task& task() { return *model_.task; }
  const BuiltModel& model() const { return model_; }
  const std::vector<Parameter>& parameters() const { return model_.parameters; }
  RankGrid& grid() const { return grid_; }
  /// Throws CommError if ranks have lost each other: then what the host reads has no meaning.
  void throw_if_failed() const { control_.throw_if_failed(); }
  /// Time this rank has spent waiting for exchanges between expert ranks. Nothing on a GPU: its
  /// host waits for none of them, and the GPU's own waiting is not measured.
  std::optional<double> exchange_wait_seconds() const;

  void visit_state(StateVisitor& visitor) override;
  void tensors_loaded() override { optimizer_->tensors_loaded(); }
  const Optimizer& optimizer() const { return *optimizer_; }
  /// Null unless parallel.shard_optimizer.
  const OptimizerShards* shards() const { return shards_.get(); }

 private:
  void run_micro_steps(StepOutcome& outcome);
  void update(const StepOutcome& outcome);
  void clip(double l2_norm);
  GradientStats survey() const;

  const Recipe& recipe_;
  RankGrid& grid_;
  BuiltModel model_;
  TrainLoader loader_;
  GradientSync sync_;
  std::unique_ptr<OptimizerShards> shards_;  ///< null unless parallel.shard_optimizer
  std::shared_ptr<Optimizer> optimizer_;
  StepScale scale_;
  std::shared_ptr<Schedule> schedule_;
  StepControl control_;
  int64_t step_ = 0;
  int64_t nonfinite_in_row_ = 0;
  int64_t skipped_steps_ = 0;
};

}  // namespace shoal
