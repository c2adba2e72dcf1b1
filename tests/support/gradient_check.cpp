#include "tests/support/gradient_check.h"

#include <algorithm>
#include <cmath>

#include "runtime/random/random.h"

namespace shoal::testing {

torch::Tensor some_numbers(at::IntArrayRef sizes, int64_t seed, torch::TensorOptions options) {
  const torch::Tensor number = torch::empty(sizes, torch::kFloat64);
  fill_uniform(number, Stream{.seed = static_cast<uint64_t>(seed), .purpose = Purpose::kTest});
  return (number * 2 - 1).to(options);
}

double gradient_error(const std::function<torch::Tensor()>& function,
                      const std::vector<torch::Tensor>& inputs, double step) {
  torch::Tensor weights;
  const auto objective = [&] {
    const torch::Tensor y = function();
    if (!weights.defined()) weights = some_numbers(y.sizes(), 77);
    return (y * weights).sum();
  };
  for (torch::Tensor input : inputs) input.mutable_grad().reset();
  objective().backward();

  double largest_gradient = 1e-3;
  double largest_error = 0.0;
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& input : inputs) {
    if (!input.requires_grad()) continue;
    TORCH_CHECK(input.scalar_type() == torch::kFloat64 && input.is_contiguous(),
                "finite differences need contiguous float64");
    TORCH_CHECK(input.grad().defined() || input.numel() == 0, "an input got no gradient");
    if (input.numel() == 0) continue;
    double* value = input.data_ptr<double>();
    const torch::Tensor grad = input.grad().contiguous();
    const double* analytic = grad.data_ptr<double>();
    for (int64_t i = 0; i < input.numel(); ++i) {
      const double kept = value[i];
      value[i] = kept + step;
      const double above = objective().item<double>();
      value[i] = kept - step;
      const double below = objective().item<double>();
      value[i] = kept;
      const double numeric = (above - below) / (2 * step);
      largest_gradient = std::max(largest_gradient, std::abs(numeric));
      largest_error = worst_of(largest_error, std::abs(numeric - analytic[i]));
    }
  }
  return largest_error / largest_gradient;
}

}  // namespace shoal::testing
