#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "parallel/gradients/step_rule.h"
#include "runtime/options/config.h"

namespace shoal {

/// Exponential moving average (EMA) of the weights, used by evaluation, never by training.
///
/// The first update copies the weights. Update t = 1, 2, ... after it computes
///     average = d * average + (1 - d) * weight,
/// with d = decay, or with warm-up d = min(decay, (1 + t) / (10 + t)) as in TensorFlow and
/// diffusers. An update follows every `every`-th optimizer step, unless that step is skipped
/// (gradients not finite). Averages have the dtype of the weights, float32 or float64. Each rank
/// averages the weights that it holds, its own experts among them, without communication.
///
/// Buffers (such as a router's selection bias) and frozen parameters are not averaged: they have no
/// gradient noise. An evaluation uses them as they are, as torch.optim.swa_utils does.
class WeightAverage : public StepRule {
 public:
  /// Section `train.average` of the YAML recipe.
  struct Options {
    double decay = 0.9999;
    int64_t every = 1;
    bool warmup = true;

    static constexpr std::string_view kShortKey = "decay";  ///< `average: 0.999` sets `decay`
    static constexpr auto fields() {
      return std::tuple{
          field("decay", &Options::decay, "decay rate of the average", in_range(0.0, below(1.0))),
          field("every", &Options::every, "steps from one update to the next", at_least(1),
                unit("steps")),
          field("warmup", &Options::warmup,
                "use smaller decay rates at first: min(decay, (1 + t) / (10 + t)) at update t")};
    }
  };
  /// A checkpoint holds the average of weight X as `average.X`, and the number of updates.
  static constexpr const char* kPrefix = "average.";
  static constexpr const char* kUpdates = "average.updates";

  /// Averages the parameters that require gradients.
  WeightAverage(const Options& options, const std::vector<Parameter>& parameters);

  int64_t num_updates() const { return num_updates_; }
  /// Returns a parameter's average; may be changed in place. TORCH_CHECK if it has none.
  const torch::Tensor& average_of(const std::string& parameter) const;
  void after_update(int64_t step, StepTensors& tensors) override;
  /// Makes the model compute with the averages until the returned handle is destroyed; copies
  /// nothing. Null before the first update. `this` must outlive the handle.
  std::shared_ptr<void> lend_weights() override;
  void visit_state(StateVisitor& visitor) override;

 private:
  Options options_;
  std::vector<Parameter> parameters_;
  std::vector<torch::Tensor> averages_;
  int64_t num_updates_ = 0;
};

}  // namespace shoal
