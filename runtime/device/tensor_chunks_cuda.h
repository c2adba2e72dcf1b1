#pragma once

#include <cstdint>

/// Lists of tensors as kernels see them that work on all of them in one launch.
namespace shoal {

enum class ValueType : int64_t { kFloat, kDouble, kBfloat16 };

/// A piece of one matrix. A list's chunks are in order.
struct TensorChunk {
  int64_t tensor;
  int64_t matrix;  ///< counted over the list
  int64_t begin;   ///< first element, of the tensor
  int64_t size;
};

/// Pointers are to GPU memory.
struct TensorChunks {
  void* const* pointer;        ///< [number of lists, num_tensors]: where tensors begin
  const ValueType* type;       ///< [num_tensors], of the first list
  const int64_t* first_chunk;  ///< [num_matrices + 1]: each matrix's
  const TensorChunk* chunk;
  int64_t num_tensors, num_matrices, num_chunks;
};

}  // namespace shoal
