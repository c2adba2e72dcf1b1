#include "sparse/linear_regions.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace shoal {
namespace {

/// log of C(n, j).
double log_choices(int64_t n, int64_t j) {
  const auto log_factorial = [](int64_t x) { return std::lgamma(static_cast<double>(x) + 1.0); };
  return log_factorial(n) - log_factorial(j) - log_factorial(n - j);
}

/// log10 of sum_{j <= k} C(n, j), by its largest term.
double log10_sum_of_choices(int64_t n, int64_t k) {
  const double largest = log_choices(n, std::min(k, n / 2));
  double sum = 0.0;
  for (int64_t j = 0; j <= k; ++j) sum += std::exp(log_choices(n, j) - largest);
  return (largest + std::log(sum)) / std::numbers::ln10;
}

}  // namespace

RegionBound bound_regions(int64_t inputs, const std::vector<RegionLayer>& layers,
                          RegionMixing mixing) {
  RegionBound bound;
  int64_t reached = 0;  // u of the layers so far
  for (const RegionLayer& layer : layers) {
    const int64_t span = std::min(inputs, layer.span.value_or(inputs));
    reached = mixing == RegionMixing::kPermuted ? std::min(inputs, reached + span) : span;
    bound.directions.push_back(std::min(layer.width, reached));
    bound.log10_regions += log10_sum_of_choices(layer.width, bound.directions.back());
    if (reached < inputs) {
      bound.layers_to_catch_up.reset();
    } else if (!bound.layers_to_catch_up) {
      bound.layers_to_catch_up = std::ssize(bound.directions);
    }
  }
  return bound;
}

}  // namespace shoal
