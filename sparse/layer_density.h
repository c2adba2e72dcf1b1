#pragma once

#include <cstdint>
#include <vector>

namespace shoal {

/// Size of a weight matrix, and the number of copies of it: experts over all ranks.
struct MatrixSize {
  int64_t rows = 0, columns = 0, copies = 1;
  int64_t weights() const { return rows * columns * copies; }
};

/// Distributes a density over layers by Erdős–Rényi-Kernel, which makes small matrices denser.
/// Returns a density per matrix, proportional to (m + n) / (m n) for m rows and n columns, at most
/// 1, so that all weights together have the requested density. Throws ConfigError without matrices
/// or if no such densities exist. Source: Evci et al. 2020 (RigL), section 3 and public code.
std::vector<double> erk_densities(const std::vector<MatrixSize>& sizes, double density);

}  // namespace shoal
