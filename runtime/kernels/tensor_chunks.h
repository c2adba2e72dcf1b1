#pragma once

#include <cstdint>

/// Describes lists of tensors cut into chunks, so that one kernel call processes all weights of an
/// optimizer. Torch-free, for use in kernels.
namespace shoal {

/// A run of elements of one matrix: a whole tensor, or one expert's part of a stack of weights.
/// Chunks are in the order of their elements.
struct TensorChunk {
  int64_t tensor;  ///< index of the tensor in the list
  int64_t matrix;  ///< index of the matrix, counted over the whole list
  int64_t begin;   ///< first element, counted from the start of the tensor
  int64_t size;    ///< elements
  int64_t offset;  ///< elements of the list before this chunk
};

enum class ValueType : int64_t { kFloat, kDouble, kBfloat16 };

/// One or more lists of tensors, such as weights and gradients, cut into the same chunks. Tensor i
/// has the same size in each list. Its type is recorded for the first list only: a kernel must know
/// the types in other lists. All pointers are to GPU memory.
struct TensorChunks {
  void* const* pointer;        ///< [number of lists, num_tensors]: data of the tensors
  const ValueType* type;       ///< [num_tensors], types of the first list
  const int64_t* first_chunk;  ///< [num_matrices + 1]: first chunk of each matrix, for norms
  const TensorChunk* chunk;    ///< [num_chunks]
  int64_t num_tensors, num_matrices, num_chunks;
};

}  // namespace shoal
