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
/// gradients and moments; tensor i has the same size in each list. It stacks num_matrices[i]
/// matrices, such as experts, in dimension 0, by default 1. Does not wait for the GPU. Throws
/// TORCH_CHECK unless the first list's dtypes are float32, float64 or bfloat16.
TensorTable make_tensor_table(at::ArrayRef<at::TensorList> lists,
                              at::IntArrayRef num_matrices = {});

}  // namespace shoal
