#pragma once

#include <cstdint>
#include <vector>

namespace shoal {

/// The size of a matrix, and the number of copies of it.
struct MatrixSize {
  int64_t rows = 0, columns = 0, copies = 1;
  int64_t weights() const { return rows * columns * copies; }
};

/// Densities by Erdős–Rényi-Kernel: proportional to (m + n) / (m n), at most 1, with the requested
/// density over all matrices. Throws ConfigError without matrices or if no such densities exist.
/// Source: Evci et al. 2020 (RigL), section 3 and the public code.
std::vector<double> erk_densities(const std::vector<MatrixSize>& sizes, double density);

}  // namespace shoal
