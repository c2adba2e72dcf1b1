#pragma once

#include <torch/types.h>

#include "runtime/kernels/tensor_chunks.h"

namespace shoal {

/// Lists of tensors, described in GPU memory, for one CUDA kernel over all weights of an optimizer.
struct TensorTable {
  torch::Tensor memory;  ///< holds what `chunks` points to; keep until the kernel is queued
  /// Kernel argument: data pointers of all lists, dtypes of the first list, and chunks. A chunk is
  /// a run of elements of one matrix, for one thread block; it gives the indices of the tensor and
  /// of the matrix, the first element, and the size. Kernels sum norms over a matrix's chunks.
  TensorChunks chunks;
};

/// Describes non-empty lists of contiguous tensors on one GPU, such as weights, gradients and
/// moments. Tensor i has the same size in each list, and stacks num_matrices[i] equal matrices,
/// such as experts, in dimension 0; by default one. Does not wait for the GPU. TORCH_CHECK unless
/// the first list is float32, float64 or bfloat16. Kernels must know the dtypes of other lists.
TensorTable make_tensor_table(at::ArrayRef<at::TensorList> lists,
                              at::IntArrayRef num_matrices = {});

}  // namespace shoal
