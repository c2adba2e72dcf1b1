#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cstdint>

// m rows  n columns  P = max(m, n) diagonals  D = min(m, n) weights of each
namespace shoal {

/// Wrapped diagonals of a matrix [m, n], the cells of the sparsity pattern `diagonal`. Each has D
/// entries: for m >= n diagonal o has the entries (row, column) = ((c + o) mod m, c) for all
/// columns c, else (r, (r + o) mod n) for all rows r. Each entry of the matrix lies on exactly one
/// diagonal. Source: Tyagi et al. 2025 (DynaDiag).
struct Diagonals {
  int64_t rows = 0, columns = 0;  ///< m, n

  int64_t count() const { return std::max(rows, columns); }
  int64_t length() const { return std::min(rows, columns); }
  /// int64 [P, D]: flat indices r n + c of diagonals' entries, by column if m >= n, else by row.
  torch::Tensor places(const torch::Device& device) const;
};

}  // namespace shoal
