#pragma once

#include <torch/types.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/backbone.h"
#include "parallel/comm/communicator.h"
#include "parallel/gradients/step_rule.h"
#include "runtime/data/batch.h"
#include "runtime/module/state.h"

namespace shoal {

/// Loss and MoE statistics of one micro-batch on this rank.
struct TrainOutput {
  /// Scalar: this rank's summed loss divided by the step's global number of items, with auxiliary
  /// losses. Its sum over micro-steps and ranks is the loss of the step.
  torch::Tensor loss;
  std::vector<MoeStats> moe;
};

/// A weighted sum over samples, accumulated over batches and ranks; its mean is sum / weight.
struct NamedSum {
  std::string name;
  double sum = 0.0, weight = 0.0;
};

/// The mean of the sum with this name; NaN if there is none.
inline double mean_of(const std::vector<NamedSum>& totals, std::string_view name) {
  for (const NamedSum& total : totals) {
    if (total.name == name) return total.sum / total.weight;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

/// Sums over this rank's samples of one batch; names and order are equal on all ranks and batches.
struct EvalOutput {
  std::vector<NamedSum> sums;
  std::vector<MoeStats> moe = {};  ///< of this batch, one entry per MoE layer
  /// Probability of each class, [b, classes], float32 or float64; undefined unless classifies().
  torch::Tensor probability_bN = {};
};

/// A number that an evaluation reports.
struct Metric {
  enum class Kind {
    kNumber,
    kShare,  ///< in [0, 1], printed as a percentage
    kCount,
    kLoss,  ///< a number that is better the lower it is; the others, the higher
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

/// The unit of throughput, such as `img`, and the number of units per sample.
struct RateUnit {
  std::string name;
  int64_t per_sample = 1;
};

/// One column of the picture grid of an evaluation, with a picture per sample of a batch.
struct PictureColumn {
  std::string name;             ///< column title
  torch::Tensor image_bCHW;     ///< values in [0, 1]
  std::string number = {};      ///< label of number_b
  torch::Tensor number_b = {};  ///< one number under each picture; undefined: none
};

/// Training samples that a task keeps during an evaluation for comparison, such as the references
/// of a nearest-neighbour classifier.
class References {
 public:
  virtual ~References() = default;
  /// Maximum number of training samples kept; 0: none are read.
  virtual int64_t most_samples() const = 0;
  /// Removes the samples of the previous evaluation.
  virtual void clear() = 0;
  /// Tells for each sample of the batch that is evaluated next which reference is the sample
  /// itself, -1: none; int64 [b]. Undefined: all references are other samples, as after clear().
  virtual void set_own(torch::Tensor reference_b) = 0;
  /// Adds labelled training samples of this rank, without augmentation. Collective, b may be 0.
  virtual void add(const Batch& batch) = 0;
};

/// The metrics of one baseline.
struct BaselineScore {
  std::string name;              ///< key in JSON
  std::string label;             ///< printed name
  std::vector<Metric> settings;  ///< values chosen or counted during fitting
  std::vector<Metric> metrics;   ///< with equal names for all baselines of a task
};

/// Simple predictors that are evaluated on the same samples as the model, for comparison. Some are
/// fitted on training samples first.
class Baselines {
 public:
  virtual ~Baselines() = default;
  /// Number of training samples that suffice for fitting.
  virtual int64_t most_samples() const = 0;
  /// Adds training samples of this rank to fit on; b, the number of samples, may be 0.
  virtual void add(const Batch& batch) = 0;
  /// Fits on the samples added on all ranks. Collective. Without this call, evaluate() leaves out
  /// the baselines that need fitting. TORCH_CHECK that samples were added.
  virtual void fit(Communicator& world) = 0;
  /// Sums over this rank's samples, as Task::evaluate returns them.
  virtual std::vector<NamedSum> evaluate(const Batch& batch) const = 0;
  /// Scores from the sums over a whole split.
  virtual std::vector<BaselineScore> scores(const std::vector<NamedSum>& totals) const = 0;
  /// One sentence for each baseline that cannot be evaluated on these data, with the reason.
  virtual std::vector<std::string> notes() const { return {}; }
};

/// Training objective: owns backbone, head and loss. Registered under `task`. Parameters of a
/// single backbone are named `backbone.…`, those of the head `head.…`.
class Task : public ModuleBase, public Stateful {
 public:
  struct Context {
    ModelContext build;
    DataShape data;
    BackboneFactory make_backbone;
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "task";

  /// Loss of a micro-batch. Collective, b may be 0. Needs batch.context.samples_in_step.
  virtual TrainOutput train(const Batch& batch) = 0;
  /// Model outputs before the criterion (classifier: logits), one row per sample. Collective.
  virtual torch::Tensor outputs(const Batch& batch) = 0;
  /// Evaluates one batch, without gradients. Collective, b may be 0.
  virtual EvalOutput evaluate(const Batch& batch) = 0;
  /// True if evaluate() gives probabilities of the classes.
  virtual bool classifies() const { return false; }
  /// Restores images that are taken as they are: [b, C, H, W] in [0, 1]; undefined (default) if the
  /// task restores none. Collective, b may be 0.
  virtual torch::Tensor restored(const Batch& batch) {
    (void)batch;
    return {};
  }
  /// Metrics from the sums over a whole split. Metrics that the split's data cannot give are
  /// omitted. With empty `totals` all metrics are returned, for the columns of tables.
  virtual std::vector<Metric> metrics(const std::vector<NamedSum>& totals) const = 0;
  /// Baselines to compare the model with in evaluations; default: none.
  virtual std::shared_ptr<Baselines> baselines() const { return nullptr; }
  /// Pictures for visual inspection of an evaluated batch, a row of columns per sample; default:
  /// none. Collective, b may be 0.
  virtual std::vector<PictureColumn> pictures(const Batch& batch) {
    (void)batch;
    return {};
  }
  virtual ScoreRule score() const = 0;
  virtual RateUnit unit() const = 0;
  /// Number of views (augmented copies) of each training image that a batch must hold.
  virtual int64_t views() const { return 1; }
  /// True if the loss compares samples of a micro-batch, and so depends on `train.accumulate`.
  virtual bool compares_samples() const { return false; }
  /// True if training samples are mixed within their routing group, train.group samples that are
  /// routed together. The group must then have at least two samples.
  virtual bool mixes_samples() const { return false; }
  /// Modules that are not trained by gradients, such as a momentum encoder. Sparse training leaves
  /// these modules dense, and no AfterStep updates (such as of router biases) are made in them.
  virtual std::vector<std::shared_ptr<torch::nn::Module>> untrained() const { return {}; }
  /// Returns a rule that changes the model beside the optimizer in each step, such as the update of
  /// a momentum encoder; default: null. `scale` has the length of the training.
  virtual std::unique_ptr<StepRule> make_step_rule(const StepScale& scale) {
    (void)scale;
    return nullptr;
  }
  /// Training samples to be collected before each evaluation; default: null, none.
  virtual References* references() { return nullptr; }
  /// Number of parameters in the head, left out of `parameters_headless` in `shoal check`.
  virtual int64_t head_parameters() const { return 0; }
  /// State besides parameters and buffers; default: none.
  void visit_state(StateVisitor& visitor) override { (void)visitor; }
};

}  // namespace shoal
