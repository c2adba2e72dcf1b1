#pragma once

#include "runtime/kernels/tensor_chunks.h"

struct CUstream_st;

// T tensors  C chunks of their elements, each for one thread block
namespace shoal {

/// Writes the sum of squares of each gradient to sum_T, in double and in a fixed order. `tensors`
/// describes one list, the gradients, each as one matrix, even a stack of experts: the kernel sums
/// by matrix. part_C: scratch memory. Pointers are to GPU memory; the call is queued on the stream.
void launch_square_sums(const TensorChunks& tensors, double* part_C, double* sum_T,
                        CUstream_st* stream);

}  // namespace shoal
