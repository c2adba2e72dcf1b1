#pragma once

#include <torch/types.h>

#include "runtime/kernels/tensor_chunks.h"

namespace shoal {

/// TensorChunks in GPU memory, copied there without a wait.
struct TensorTable {
  torch::Tensor memory;
  TensorChunks chunks;
};

/// Describes lists of contiguous tensors of equal sizes on one GPU; tensor i stacks num_matrices[i]
/// matrices in dimension 0, default 1. TORCH_CHECK on types other than ValueType's.
TensorTable make_tensor_table(at::ArrayRef<at::TensorList> lists,
                              at::IntArrayRef num_matrices = {});

}  // namespace shoal
