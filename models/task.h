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

struct TrainOutput {
  /// Scalar: this rank's local sum over the step's number of items, auxiliary losses included.
  /// Sums over micro-steps and ranks to the loss of the step.
  torch::Tensor loss;
  std::vector<MoeStats> moe;
};

/// A sum over samples, added up over batches and ranks; its mean is sum / weight.
struct NamedSum {
  std::string name;
  double sum = 0.0, weight = 0.0;
};

/// The mean of the sum of this name; not a number where there is none.
inline double mean_of(const std::vector<NamedSum>& totals, std::string_view name) {
  for (const NamedSum& total : totals) {
    if (total.name == name) return total.sum / total.weight;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

/// Sums over this rank's samples, equal in names and order on all ranks, and each batch.
struct EvalOutput {
  std::vector<NamedSum> sums;
  std::vector<MoeStats> moe = {};  ///< of this batch, one entry a MoE layer
};

/// A number that an evaluation reports.
struct Metric {
  enum class Kind {
    kNumber,
    kShare,  ///< in [0, 1]; people read it as percent
    kCount,
  };
  std::string name;  ///< in JSON and CSV
  double value = 0.0;
  Kind kind = Kind::kNumber;
  std::string label = name;  ///< for people
};

/// What decides which checkpoint is the best: a metric's name and its direction.
struct ScoreRule {
  std::string metric;
  bool higher_is_better = true;
};

/// What rates count: `img`, and how many a sample has.
struct RateUnit {
  std::string name;
  int64_t per_sample = 1;
};

/// One of the pictures that are shown of each sample of a batch.
struct PictureColumn {
  std::string name;             ///< for people
  torch::Tensor image_bCHW;     ///< in [0, 1]
  std::string number = {};      ///< for people: what number_b is
  torch::Tensor number_b = {};  ///< a number of each picture; undefined: none
};

/// What a task keeps of training samples while it is evaluated, such as the neighbours that an
/// evaluation's samples are compared with.
class References {
 public:
  virtual ~References() = default;
  /// Training samples that are kept at most; 0: none are read.
  virtual int64_t most_samples() const = 0;
  /// Forgets those of the evaluation before.
  virtual void clear() = 0;
  /// Training samples of this rank, as evaluation reads them, with labels. Collective, b may be 0.
  virtual void add(const Batch& batch) = 0;
};

/// What one baseline reaches.
struct BaselineScore {
  std::string name;              ///< in JSON
  std::string label;             ///< for people
  std::vector<Metric> settings;  ///< numbers that were chosen or counted while fitting it
  std::vector<Metric> metrics;   ///< of the same names in all baselines of a task
};

/// Simple predictors that an evaluation compares a task's model with, on the same samples. Some are
/// fitted on training samples first.
class Baselines {
 public:
  virtual ~Baselines() = default;
  /// Training samples that are enough to fit on.
  virtual int64_t most_samples() const = 0;
  /// Training samples of this rank, b may be 0.
  virtual void add(const Batch& batch) = 0;
  /// Fits on what all ranks have added. Collective. Without it, baselines that are fitted are left
  /// out. TORCH_CHECK that there are samples.
  virtual void fit(Communicator& world) = 0;
  /// As Task::evaluate.
  virtual std::vector<NamedSum> evaluate(const Batch& batch) const = 0;
  /// Of the sums over a whole split.
  virtual std::vector<BaselineScore> scores(const std::vector<NamedSum>& totals) const = 0;
  /// Which are left out of every evaluation of these data, and why; sentences.
  virtual std::vector<std::string> notes() const { return {}; }
};

/// What is trained for: owns backbone, head and criterion. Registered under `task`.
/// Parameters: those of a single backbone under `backbone.`, the head's under `head.`.
class Task : public ModuleBase, public Stateful {
 public:
  struct Context {
    ModelContext build;
    DataShape data;
    BackboneFactory make_backbone;
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "task";

  /// Collective, b may be 0. TORCH_CHECK unless batch.context.samples_in_step is set.
  virtual TrainOutput train(const Batch& batch) = 0;
  /// The model's output before the criterion (for a classifier: logits), one row per sample.
  /// Collective.
  virtual torch::Tensor outputs(const Batch& batch) = 0;
  /// Without gradients. Collective, b may be 0.
  virtual EvalOutput evaluate(const Batch& batch) = 0;
  /// What is reported of the sums over a whole split. Without any sums every name is there, where
  /// the columns of tables come from; of a split, what its data cannot tell is left out.
  virtual std::vector<Metric> metrics(const std::vector<NamedSum>& totals) const = 0;
  /// What an evaluation compares the model with; by default null: nothing.
  virtual std::shared_ptr<Baselines> baselines() const { return nullptr; }
  /// Pictures of what is evaluated, by which people judge the model, side by side for each sample;
  /// by default the task draws none. Collective, b may be 0.
  virtual std::vector<PictureColumn> pictures(const Batch& batch) {
    (void)batch;
    return {};
  }
  virtual ScoreRule score() const = 0;
  virtual RateUnit unit() const = 0;
  /// Views of each training image that a batch has to hold.
  virtual int64_t views() const { return 1; }
  /// Whether the loss compares the samples of a micro-step with each other, so that its value would
  /// depend on `train.accumulate`.
  virtual bool compares_samples() const { return false; }
  /// Whether a training sample may be mixed with others of its routing group, which needs two.
  virtual bool mixes_samples() const { return false; }
  /// Modules that gradients do not train, such as a momentum encoder. They stay dense, and are not
  /// told of the end of a step (AfterStep).
  virtual std::vector<std::shared_ptr<torch::nn::Module>> untrained() const { return {}; }
  /// What changes the model beside the optimizer, in a training of this length; default: null. A
  /// task learns only here where the training ends.
  virtual std::unique_ptr<StepRule> make_step_rule(const StepScale& scale) {
    (void)scale;
    return nullptr;
  }
  /// Training samples that an evaluation shows the task first; default: null, none.
  virtual References* references() { return nullptr; }
  /// Parameters that `parameters_headless` leaves out: the classifier's weight and bias.
  virtual int64_t head_parameters() const { return 0; }
  /// State beside the parameters; none by default.
  void visit_state(StateVisitor& visitor) override { (void)visitor; }
};

}  // namespace shoal
