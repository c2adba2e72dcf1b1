#pragma once

#include "runtime/kernels/tensor_chunks.h"

struct CUstream_st;

namespace shoal {

/// Writes the sum of squares of each tensor of the first list, each one matrix, to sum_T. part_C:
/// scratch, one for each chunk. Summed in double in a fixed order. Pointers are to GPU memory; the
/// call is queued on the stream.
void launch_square_sums(const TensorChunks& tensors, double* part_C, double* sum_T,
                        CUstream_st* stream);

}  // namespace shoal
