#pragma once

#include <torch/types.h>

#include <cmath>
#include <cstdint>

namespace shoal {

/// Adam of a tensor that is trained for a part of the training: its state is not the optimizer's,
/// and goes with it. Betas 0.9 and 0.999, epsilon 1e-8, no weight decay.
struct SoftAdam {
  torch::Tensor m, v;  ///< as the tensor; undefined without one

  /// Has a state from now on, all zeros.
  void begin(const torch::Tensor& like) { m = torch::zeros_like(like), v = torch::zeros_like(like); }
  void end() { m = v = torch::Tensor(); }
  /// One update of x, the `updates`th, counted from 1.
  void update(const torch::Tensor& x, const torch::Tensor& gradient, double lr, int64_t updates) {
    m.mul_(kBeta1).add_(gradient, 1.0 - kBeta1);
    v.mul_(kBeta2).addcmul_(gradient, gradient, 1.0 - kBeta2);
    const auto count = static_cast<double>(updates);
    const double rate = lr / (1.0 - std::pow(kBeta1, count));
    const double square_scale = 1.0 / (1.0 - std::pow(kBeta2, count));
    x.addcdiv_(m, (v * square_scale).sqrt().add_(kEps), -rate);
  }

 private:
  static constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8;
};

}  // namespace shoal
