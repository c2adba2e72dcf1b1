#pragma once

#include <cstdint>

/// Lists of tensors, cut into chunks that are worked on side by side. Torch-free.
namespace shoal {

/// A piece of one matrix. A list's chunks are in order.
struct TensorChunk {
  int64_t tensor;  ///< index in the list
  int64_t matrix;  ///< counted over the list
  int64_t begin;   ///< first element, of the tensor
  int64_t size;
  int64_t offset;  ///< elements before it, over the list
};

enum class ValueType : int64_t { kFloat, kDouble, kBfloat16 };

/// Lists as kernels see them. Pointers are to GPU memory.
struct TensorChunks {
  void* const* pointer;        ///< [number of lists, num_tensors]: where tensors begin
  const ValueType* type;       ///< [num_tensors], of the first list
  const int64_t* first_chunk;  ///< [num_matrices + 1]: each matrix's
  const TensorChunk* chunk;
  int64_t num_tensors, num_matrices, num_chunks;
};

}  // namespace shoal
