#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/kernels/tensor_chunks.h"

namespace shoal {

/// A list of tensors divided into chunks of a fixed size. Sums taken per chunk and added in order
/// do not depend on the number of threads.
class MatrixChunks {
 public:
  static constexpr int64_t kElements = 8192;  ///< elements of a chunk, which fits a core's cache

  /// Tensor i stacks num_matrices[i] matrices in dimension 0; default: 1.
  explicit MatrixChunks(at::TensorList tensors, at::IntArrayRef num_matrices = {},
                        int64_t chunk_elements = kElements);

  size_t size() const { return chunks_.size(); }
  const TensorChunk& operator[](size_t index) const { return chunks_[index]; }
  const std::vector<TensorChunk>& chunks() const { return chunks_; }
  /// [matrices + 1]: index of each matrix's first chunk.
  const std::vector<int64_t>& first_chunk() const { return first_chunk_; }

  /// A run of chunks [first, last) that holds whole matrices.
  struct Group {
    size_t first = 0, last = 0;
  };
  /// Divides the list into groups of at most `elements`, or of a single larger matrix.
  std::vector<Group> groups_of(int64_t elements) const;

  /// Calls body(index) for each chunk (of a group), on all threads.
  void for_each(const std::function<void(size_t)>& body) const { for_each({0, size()}, body); }
  void for_each(const Group& group, const std::function<void(size_t)>& body) const;

 private:
  /// Elements of the chunks [first, last); first < last.
  int64_t elements_of(size_t first, size_t last) const {
    return chunks_[last - 1].offset + chunks_[last - 1].size - chunks_[first].offset;
  }

  std::vector<TensorChunk> chunks_;
  std::vector<int64_t> first_chunk_{0};
};

}  // namespace shoal
