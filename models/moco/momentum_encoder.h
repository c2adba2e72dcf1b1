#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "parallel/gradients/step_rule.h"
#include "runtime/options/config.h"

namespace shoal {

/// Schedules of the key encoder's momentum over a training.
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

  /// The momentum of a step from 0: constant, or 1 - (1 + cos(pi step / total)) / 2 · (1 -
  /// momentum), which rises to 1. Source: MoCo v3's main_moco.py.
  double at(int64_t step, int64_t total_steps) const;
};

/// Updates a key encoder as the moving average of the query encoder: before each step, weights k
/// become m k + (1 - m) q, at the first step q. Buffers, such as a router's bias, are copied. Each
/// rank updates its own shards, without a collective.
class MomentumEncoder : public StepRule {
 public:
  struct Pair {
    torch::Tensor key, query;
  };
  /// `momentum`: m of each step of a training of `total_steps`.
  MomentumEncoder(std::vector<Pair> weights, std::vector<Pair> buffers,
                  const MomentumOptions& momentum, int64_t total_steps);

  void before_forward(int64_t step) override;
  std::vector<torch::Tensor> moved_weights() const override;
  /// `task.momentum`.
  std::vector<Course> courses(const StepScale& scale) const override;
  void visit_state(StateVisitor& /*visitor*/) override {}

 private:
  std::vector<Pair> weights_, buffers_;
  MomentumOptions momentum_;
  int64_t total_steps_;
};

}  // namespace shoal
