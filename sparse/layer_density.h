#pragma once

#include <cstdint>
#include <vector>

namespace shoal {

/// A matrix [rows, columns], `copies` times.
struct MatrixSize {
  int64_t rows = 0, columns = 0, copies = 1;
  int64_t weights() const { return rows * columns * copies; }
};

/// Densities by Erdős–Rényi-Kernel: that of a matrix is proportional to (m + n) / (m n), at most 1,
/// and all together have the density asked for. Throws ConfigError without matrices or where no
/// such densities are. Source: Evci
/// et al. 2020 (RigL), section 3 and the public code.
std::vector<double> erk_densities(const std::vector<MatrixSize>& sizes, double density);

}  // namespace shoal
