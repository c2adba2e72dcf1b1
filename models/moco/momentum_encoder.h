#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "parallel/gradients/step_rule.h"
#include "runtime/options/config.h"

namespace shoal {

/// Schedule of the momentum m: constant, or a cosine that rises to 1 at the end of the training.
enum class MomentumSchedule { kConstant, kCosine };

template <>
struct EnumNames<MomentumSchedule> {
  static constexpr std::array names{std::pair{MomentumSchedule::kConstant, "constant"},
                                    std::pair{MomentumSchedule::kCosine, "cosine"}};
};

/// Momentum of a key encoder and its schedule.
struct MomentumOptions {
  double momentum = 0.99;
  MomentumSchedule schedule = MomentumSchedule::kConstant;

  /// Returns m at optimizer step `step`, counted from 0: `momentum`, or with kCosine 1 - (1 +
  /// cos(pi step / total_steps)) / 2 · (1 - momentum). Source: MoCo v3's main_moco.py.
  double at(int64_t step, int64_t total_steps) const;
};

/// Updates MoCo v3's key encoder as the moving average of the query encoder: before each step, key
/// weights k become m k + (1 - m) q; at step 0 they become q. Buffers, such as a router's bias, are
/// copied. Each rank updates the tensors that it holds, without a collective.
class MomentumEncoder : public StepRule {
 public:
  struct Pair {
    torch::Tensor key, query;  ///< a tensor of the key encoder, and of the query encoder
  };
  /// `weights` are averaged, `buffers` copied. `total_steps`: optimizer steps of the training.
  MomentumEncoder(std::vector<Pair> weights, std::vector<Pair> buffers,
                  const MomentumOptions& momentum, int64_t total_steps);

  void before_forward(int64_t step) override;
  std::vector<torch::Tensor> moved_weights() const override;
  /// Returns the schedule of m, `task.momentum`, for resumed runs of another length to compare.
  std::vector<Course> courses(const StepScale& scale) const override;
  void visit_state(StateVisitor& /*visitor*/) override {}

 private:
  std::vector<Pair> weights_, buffers_;
  MomentumOptions momentum_;
  int64_t total_steps_;
};

}  // namespace shoal
