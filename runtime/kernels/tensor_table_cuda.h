#pragma once

#include <torch/types.h>

#include "runtime/kernels/tensor_chunks.h"

namespace shoal {

/// Lists of tensors, described in GPU memory, for one CUDA kernel over all weights of an optimizer.
/// Chunk: a run of one matrix's elements, for one thread block. Keep until the kernel is queued.
struct TensorTable {
  torch::Tensor memory;  ///< holds what `chunks` points to
  TensorChunks chunks;
};

/// Describes one or more non-empty lists of contiguous tensors on one GPU, such as weights,
/// gradients and moments. Tensor i has the same size in each list. num_matrices[i] is the number of
/// matrices of one size that tensor i stacks in dimension 0, such as experts; if `num_matrices` is
/// empty, each tensor is one matrix. Does not wait for the GPU. TORCH_CHECK unless the first list's
/// tensors are float32, float64 or bfloat16. Other lists' dtypes are neither checked nor recorded.
TensorTable make_tensor_table(at::ArrayRef<at::TensorList> lists,
                              at::IntArrayRef num_matrices = {});

}  // namespace shoal
