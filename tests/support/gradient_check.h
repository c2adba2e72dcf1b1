#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

namespace shoal::testing {

/// The larger of two errors; infinity if one is NaN, which std::max may pass over.
inline double worst_of(double a, double b) {
  const bool is_nan = std::isnan(a) || std::isnan(b);
  return is_nan ? std::numeric_limits<double>::infinity() : std::max(a, b);
}

/// Largest difference between the gradients of autograd and central finite differences, relative to
/// the largest gradient (at least 1e-3), over all inputs that require a gradient. `function` maps
/// `inputs`, float64, to a tensor; its sum with fixed, uneven weights is differentiated.
///
/// A smooth function gives about 1e-9; demand 1e-6.
double gradient_error(const std::function<torch::Tensor()>& function,
                      const std::vector<torch::Tensor>& inputs, double step = 1e-5);

/// The largest difference over the largest number expected, in float64.
inline double relative_error(const torch::Tensor& value, const torch::Tensor& expected) {
  const torch::Tensor wide = expected.to(torch::kFloat64);
  const torch::Tensor apart = (value.to(torch::kFloat64) - wide).abs().max();
  return apart.item<double>() / std::max(wide.abs().max().item<double>(), 1e-30);
}

/// The largest difference; 0 of tensors without elements.
inline double apart(const torch::Tensor& a, const torch::Tensor& b) {
  return a.numel() == 0 ? 0.0 : (a - b).abs().max().item<double>();
}

/// Values in (-1, 1) without pattern or repetition, float64 unless options say otherwise: enough
/// for tests that need no more than "some numbers". Different seeds give different values.
torch::Tensor some_numbers(at::IntArrayRef sizes, int64_t seed,
                           torch::TensorOptions options = torch::kFloat64);

}  // namespace shoal::testing
