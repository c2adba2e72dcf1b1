#pragma once

#include "runtime/kernels/tensor_chunks.h"

struct CUstream_st;

// T tensors  C chunks of them
namespace shoal {

/// Writes the sum of squares of each tensor of the first list to sum_T, for the gradient norm.
/// `tensors` must be cut with one matrix per tensor. part_C is scratch memory. Summed in double in
/// a fixed order. Pointers are to GPU memory; the call is queued on the stream.
void launch_square_sums(const TensorChunks& tensors, double* part_C, double* sum_T,
                        CUstream_st* stream);

}  // namespace shoal
