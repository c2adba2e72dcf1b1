#pragma once

#include <torch/types.h>

#include "runtime/kernels/tensor_chunks.h"

namespace shoal {

/// Lists of tensors cut into chunks, described in GPU memory, for CUDA kernels over all weights of
/// an optimizer. Keep it until the kernel is queued.
struct TensorTable {
  torch::Tensor memory;  ///< holds what `chunks` points to
  TensorChunks chunks;
};

/// Describes one or more non-empty lists of contiguous tensors on one GPU, such as weights,
/// gradients and moments. Tensor i has the same size in each list and stacks num_matrices[i]
/// matrices, such as experts, in dimension 0; without `num_matrices` each tensor is one matrix.
/// Does not wait for the GPU. Throws TORCH_CHECK unless each tensor of the first list is float32,
/// float64 or bfloat16. Dtypes of the other lists are neither checked nor recorded.
TensorTable make_tensor_table(at::ArrayRef<at::TensorList> lists,
                              at::IntArrayRef num_matrices = {});

}  // namespace shoal
