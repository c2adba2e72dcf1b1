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

/// Exponential moving average (EMA) of the weights; training itself does not use it.
///
/// The first update copies the weights. Update t = 1, 2, ... after it computes
///     average = d * average + (1 - d) * weight,
/// with d = decay, or with warm-up min(decay, (1 + t) / (10 + t)) as in TensorFlow and diffusers.
/// An update follows every `every`-th step, unless that step is skipped. Until the first one there
/// is no average. Averages have the dtype of the weights, float32 or float64. Each rank averages
/// what it holds, of a stack its own units: no collective.
///
/// Buffers (a router's selection bias, thresholds) and frozen parameters are not averaged; the
/// model's own are used beside the averages, as in torch.optim.swa_utils: gradients do not move
/// them, so they have no gradient noise to average out.
class WeightAverage : public StepRule {
 public:
  /// `train.average`.
  struct Options {
    double decay = 0.9999;
    int64_t every = 1;
    bool warmup = true;

    static constexpr std::string_view kShortKey = "decay";
    static constexpr auto fields() {
      return std::tuple{
          field("decay", &Options::decay, "share of the average that an update keeps",
                in_range(0.0, below(1.0))),
          field("every", &Options::every, "steps from one update to the next", at_least(1),
                unit("steps")),
          field("warmup", &Options::warmup,
                "smaller decays at first: update t has min(decay, (1 + t) / (10 + t))")};
    }
  };
  /// A checkpoint holds the average of weight X as `average.X`, and the number of updates.
  static constexpr const char* kPrefix = "average.";
  static constexpr const char* kUpdates = "average.updates";

  /// Averages the parameters that require gradients.
  WeightAverage(const Options& options, const std::vector<Parameter>& parameters);

  int64_t num_updates() const { return num_updates_; }
  /// The average of a parameter, to be changed in place. TORCH_CHECK if it is not averaged.
  const torch::Tensor& average_of(const std::string& parameter) const;
  void after_update(int64_t step, StepTensors& tensors) override;
  /// Lends the averages, if there are any: only pointers are exchanged. `this` outlives the loan.
  std::shared_ptr<void> lend_weights() override;
  void visit_state(StateVisitor& visitor) override;

 private:
  Options options_;
  std::vector<Parameter> parameters_;
  std::vector<torch::Tensor> averages_;
  int64_t num_updates_ = 0;
};

}  // namespace shoal
