#pragma once

#include <torch/custom_class.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <mutex>

namespace shoal {

/// Sparse matrix in CSR format on a GPU, with cuSPARSE's prepared state for its products. Row i has
/// the values [start[i], start[i + 1]), whose columns in `column` are ascending.
///
/// For each of the last kMostPrepared kinds of product (operation, number of tokens, dtype, thread
/// and stream) the plug-in (csr_product_cuda.cpp) caches a matrix descriptor and a workspace in
/// `prepared`. A new mask makes a new matrix, and the cache of the old one is freed with it. Values
/// and dense factors are arguments of each call; `mutex` serialises calls.
struct GpuCsrMatrix : torch::CustomClassHolder {
  torch::Tensor start, column;  ///< int32 [rows + 1], [weights]
  int64_t num_columns = 0;

  static constexpr size_t kMostPrepared = 8;
  std::mutex mutex;
  std::shared_ptr<void> prepared;  ///< owned by the plug-in; null before the first product

  int64_t num_rows() const { return start.size(0) - 1; }
  int64_t num_weights() const { return column.size(0); }
};

}  // namespace shoal
