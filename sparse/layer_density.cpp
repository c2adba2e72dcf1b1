#include "sparse/layer_density.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/exact_share.h"

namespace shoal {
namespace {

constexpr double kRounding = 1e-12;

double raw_density(const MatrixSize& size) {
  return static_cast<double>(size.rows + size.columns) /
         (static_cast<double>(size.rows) * static_cast<double>(size.columns));
}

/// epsilon of the public code: what the layers that are not dense multiply their raw density with.
double factor_of(const std::vector<MatrixSize>& sizes, const std::vector<bool>& is_dense,
                 double density) {
  double left = 0.0, raw = 0.0;  // weights
  for (size_t l = 0; l < sizes.size(); ++l) {
    const int64_t on = ceil_share(sizes[l].weights(), decimal_of(density), 1);
    left += static_cast<double>(is_dense[l] ? on - sizes[l].weights() : on);
    if (!is_dense[l]) raw += raw_density(sizes[l]) * static_cast<double>(sizes[l].weights());
  }
  if (raw == 0.0 || left <= 0.0) {
    throw ConfigError(
        "sparsity.distribution: erk has no solution for these layers at this "
        "density; use uniform");
  }
  return left / raw;
}

}  // namespace

std::vector<double> erk_densities(const std::vector<MatrixSize>& sizes, double density) {
  std::vector<bool> is_dense(sizes.size(), false);
  while (true) {
    const double factor = factor_of(sizes, is_dense, density);
    double most = 0.0;
    for (size_t l = 0; l < sizes.size(); ++l) {
      if (!is_dense[l]) most = std::max(most, raw_density(sizes[l]));
    }
    if (factor * most <= 1.0 + kRounding) {
      std::vector<double> densities;
      for (size_t l = 0; l < sizes.size(); ++l) {
        densities.push_back(is_dense[l] ? 1.0 : std::min(1.0, factor * raw_density(sizes[l])));
      }
      return densities;
    }
    for (size_t l = 0; l < sizes.size(); ++l) {
      if (raw_density(sizes[l]) == most) is_dense[l] = true;
    }
  }
}

}  // namespace shoal
