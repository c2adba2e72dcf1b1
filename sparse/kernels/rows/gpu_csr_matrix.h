#pragma once

#include <torch/custom_class.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <mutex>

namespace shoal {

/// A sparse matrix on a GPU in compressed sparse rows, and what cuSPARSE prepared for products with
/// it. Row i has the values [start[i], start[i + 1]); `column` holds their columns, ascending.
///
/// The plug-in (csr_product_cuda.cpp) keeps in `prepared` a matrix descriptor and a workspace for
/// each of the last kMostPrepared kinds of product: operation, number of tokens, dtype, thread and
/// stream. A new mask makes a new GpuCsrMatrix, so nothing prepared outlives its mask. Values and
/// dense factors are given in each call. Calls are made one at a time.
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
