#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/backbone.h"
#include "runtime/module/state.h"

namespace shoal {

/// One micro-batch on this rank: b images, whole routing groups, in stream order.
struct TaskBatch {
  torch::Tensor image_bCHW;
  torch::Tensor label_b;  ///< int64
};

struct TrainOutput {
  /// Scalar: this rank's local sum over the step's number of items, auxiliary losses included.
  /// Sums over micro-steps and ranks to the loss of the step.
  torch::Tensor loss;
  std::vector<MoeStats> moe;
};

/// Sums over this rank's samples; added up over batches and ranks before they are divided.
struct EvalSums {
  double loss = 0.0;
  int64_t top1 = 0, top5 = 0, samples = 0;
  std::vector<MoeStats> moe = {};  ///< of this batch, one entry a MoE layer
};

/// What is trained for: owns the head and the criterion around a backbone. Registered under `task`.
/// Parameters: the backbone's under `backbone.`, the head's under `head.`.
class Task : public ModuleBase, public Stateful {
 public:
  struct Context {
    std::shared_ptr<Backbone> backbone;
    BuildContext build;
    int64_t num_classes = 0;
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "task";

  /// Collective, b may be 0. TORCH_CHECK unless step.samples_in_step is set.
  virtual TrainOutput train(const TaskBatch& batch, const StepContext& step) = 0;
  /// What the model says before the criterion: logits, [b, num_classes]. Collective.
  virtual torch::Tensor outputs(const TaskBatch& batch, const StepContext& step) = 0;
  /// Without gradients. Collective, b may be 0.
  virtual EvalSums evaluate(const TaskBatch& batch, const StepContext& step) = 0;
  /// After the optimizer's step; not called for a skipped one.
  virtual void after_step(int64_t step) { (void)step; }
  /// Parameters that `parameters_headless` leaves out: the classifier's weight and bias.
  virtual int64_t head_parameters() const = 0;
  /// State beside the parameters; none by default.
  void visit_state(StateVisitor& visitor) override { (void)visitor; }
};

}  // namespace shoal
