#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/backbone.h"
#include "parallel/gradients/step_rule.h"
#include "runtime/module/state.h"

namespace shoal {

/// Loss and MoE statistics of one micro-batch on this rank.
struct TrainOutput {
  /// Scalar: this rank's local sum over the step's number of items, auxiliary losses included.
  /// Summed over micro-steps and ranks it is the step's loss.
  torch::Tensor loss;
  std::vector<MoeStats> moe;
};

/// A sum over samples, added up over batches and ranks; the mean is sum / weight.
struct NamedSum {
  std::string name;
  double sum = 0.0, weight = 0.0;
};

/// The mean of the sum of this name; NaN if there is none.
inline double mean_of(const std::vector<NamedSum>& totals, std::string_view name) {
  for (const NamedSum& total : totals) {
    if (total.name == name) return total.sum / total.weight;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

/// Sums over this rank's samples, with equal names and order on all ranks and for each batch.
struct EvalOutput {
  std::vector<NamedSum> sums;
  std::vector<MoeStats> moe = {};  ///< statistics of this batch, one entry a MoE layer
};

/// A number that an evaluation reports.
struct Metric {
  enum class Kind {
    kNumber,
    kShare,  ///< in [0, 1]; shown as percent
    kCount,
  };
  std::string name;  ///< key in JSON and CSV
  double value = 0.0;
  Kind kind = Kind::kNumber;
  std::string label = name;  ///< printed name
};

/// The metric that selects the best checkpoint, and its direction.
struct ScoreRule {
  std::string metric;
  bool higher_is_better = true;
};

/// Unit of rates, such as `img`, and its number per sample.
struct RateUnit {
  std::string name;
  int64_t per_sample = 1;
};

/// One kind of picture shown for each sample of a batch.
struct PictureColumn {
  std::string name;             ///< for people
  torch::Tensor image_bCHW;     ///< in [0, 1]
  std::string number = {};      ///< for people: name of number_b
  torch::Tensor number_b = {};  ///< a number for each picture; undefined: none
};

/// A number that changes over a training towards its end, such as a momentum that rises to 1.
struct Course {
  std::string name;                        ///< recipe key, for people
  std::function<double(int64_t step)> at;  ///< value at a step, counted from 0
};

class Baselines;
class References;

/// The training objective: owns backbone, head and criterion. Registered under `task`. Parameters:
/// those of a single backbone under `backbone.`, the head's under `head.`.
class Task : public ModuleBase, public Stateful {
 public:
  struct Context {
    BuildContext build;
    DataShape data;
    BackboneFactory make_backbone;
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "task";

  /// Loss of a micro-batch. Collective, b may be 0. Needs batch.context.samples_in_step.
  virtual TrainOutput train(const Batch& batch) = 0;
  /// The model's output before the criterion (for a classifier: logits), one row per sample.
  /// Collective.
  virtual torch::Tensor outputs(const Batch& batch) = 0;
  /// Evaluates without gradients. Collective, b may be 0.
  virtual EvalOutput evaluate(const Batch& batch) = 0;
  /// Metrics from the sums over a whole split. Without sums, lists every name, for the columns of
  /// tables; with sums, leaves out metrics that the split's data does not determine.
  virtual std::vector<Metric> metrics(const std::vector<NamedSum>& totals) const = 0;
  /// Simple predictors to compare the model with in an evaluation; default: null.
  virtual std::shared_ptr<Baselines> baselines() const { return nullptr; }
  /// Pictures from the evaluation, side by side for each sample, for people to judge the model;
  /// default: none. Collective, b may be 0.
  virtual std::vector<PictureColumn> pictures(const Batch& batch) {
    (void)batch;
    return {};
  }
  virtual ScoreRule score() const = 0;
  virtual RateUnit unit() const = 0;
  /// Number of views of each training image in a batch.
  virtual int64_t views() const { return 1; }
  /// True if the loss compares the samples of a micro-step with each other, so that it depends on
  /// `train.accumulate`.
  virtual bool compares_samples() const { return false; }
  /// True if a training sample may be mixed with others of its routing group, which then needs two.
  virtual bool mixes_samples() const { return false; }
  /// Modules that are not trained by gradients, such as a momentum encoder. They stay dense, and
  /// their AfterStep is not called.
  virtual std::vector<std::shared_ptr<torch::nn::Module>> untrained() const { return {}; }
  /// The numbers that depend on the end of a training of this many steps. A task gets the end only
  /// here, so that a resume that moves it can report what changes. Default: none.
  virtual std::vector<Course> courses(int64_t total_steps) const {
    (void)total_steps;
    return {};
  }
  /// A rule that changes the model beside the optimizer, following these courses(); default: null.
  virtual std::unique_ptr<StepRule> make_step_rule(const std::vector<Course>& courses) {
    (void)courses;
    return nullptr;
  }
  /// Training samples to collect before an evaluation; default: null, none.
  virtual References* references() { return nullptr; }
  /// Number of parameters that `parameters_headless` leaves out: the classifier's weight and bias.
  virtual int64_t head_parameters() const { return 0; }
  /// State beside the parameters; default: none.
  void visit_state(StateVisitor& visitor) override { (void)visitor; }
};

}  // namespace shoal
