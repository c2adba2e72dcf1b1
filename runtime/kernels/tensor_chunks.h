#pragma once

#include <cstdint>

/// Lists of tensors, divided into chunks that are processed in parallel. Torch-free.
namespace shoal {

/// A part of one matrix. A list's chunks are in order.
struct TensorChunk {
  int64_t tensor;  ///< index of the tensor in the list
  int64_t matrix;  ///< index of the matrix over the list
  int64_t begin;   ///< first element, counted in the tensor
  int64_t size;
  int64_t offset;  ///< elements of the list before it
};

enum class ValueType : int64_t { kFloat, kDouble, kBfloat16 };

/// Lists in the form kernels take. Pointers are to GPU memory.
struct TensorChunks {
  void* const* pointer;        ///< [number of lists, num_tensors]: data of the tensors
  const ValueType* type;       ///< [num_tensors], types of the first list
  const int64_t* first_chunk;  ///< [num_matrices + 1]: first chunk of each matrix
  const TensorChunk* chunk;
  int64_t num_tensors, num_matrices, num_chunks;
};

}  // namespace shoal
