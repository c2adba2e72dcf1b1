#include "models/moco/momentum_encoder.h"

#include <cmath>
#include <numbers>

namespace shoal {

double MomentumOptions::at(int64_t step, int64_t total_steps) const {
  if (schedule == MomentumSchedule::kConstant) return momentum;
  const double progress = static_cast<double>(step) / static_cast<double>(total_steps);
  return 1.0 - 0.5 * (1.0 + std::cos(std::numbers::pi * progress)) * (1.0 - momentum);
}

MomentumEncoder::MomentumEncoder(std::vector<Pair> weights, std::vector<Pair> buffers,
                                 const MomentumOptions& momentum, int64_t total_steps)
    : weights_(std::move(weights)),
      buffers_(std::move(buffers)),
      momentum_(momentum),
      total_steps_(total_steps) {}

std::vector<torch::Tensor> MomentumEncoder::moved_weights() const {
  std::vector<torch::Tensor> moved;
  for (const Pair& pair : weights_) moved.push_back(pair.key.detach());
  return moved;
}

std::vector<Course> MomentumEncoder::courses(const StepScale& scale) const {
  return {{"task.momentum", [momentum = momentum_, total_steps = scale.total_steps](int64_t step) {
             return momentum.at(step, total_steps);
           }}};
}

void MomentumEncoder::before_forward(int64_t step) {
  const torch::NoGradGuard no_grad;
  const double momentum = step == 0 ? 0.0 : momentum_.at(step, total_steps_);
  for (const auto& [key, query] : weights_) {
    if (momentum == 0.0) {
      key.copy_(query);
    } else {
      key.lerp_(query, 1.0 - momentum);  // leaves a key that equals its query as it is
    }
  }
  for (const auto& [key, query] : buffers_) key.copy_(query);
}

}  // namespace shoal
