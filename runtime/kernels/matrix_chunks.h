#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/kernels/tensor_chunks.h"

namespace shoal {

/// Cuts a list of tensors, such as all weights of an optimizer, into chunks for parallel loops on
/// CPUs. A chunk lies within one matrix: a tensor, or one expert's part of a stack of weights. Sums
/// taken per chunk and added in order do not depend on the number of threads.
/// TensorChunk::begin counts within the chunk's tensor, TensorChunk::offset over the whole list.
class MatrixChunks {
 public:
  static constexpr int64_t kElements = 8192;  ///< most elements of a chunk; fits a core's cache

  /// Tensor i stacks num_matrices[i] equal matrices in dimension 0; by default it is one matrix.
  explicit MatrixChunks(at::TensorList tensors, at::IntArrayRef num_matrices = {},
                        int64_t chunk_elements = kElements);

  size_t size() const { return chunks_.size(); }
  const TensorChunk& operator[](size_t index) const { return chunks_[index]; }
  const std::vector<TensorChunk>& chunks() const { return chunks_; }
  /// [matrices + 1]: index of each matrix's first chunk, then the number of chunks.
  const std::vector<int64_t>& first_chunk() const { return first_chunk_; }

  /// The chunks [first, last), which hold whole matrices.
  struct Group {
    size_t first = 0, last = 0;
  };
  /// Divides the list into groups of at most `elements` elements each, so that several passes
  /// over a group stay in the cache. A larger matrix is a group by itself.
  std::vector<Group> groups_of(int64_t elements) const;

  /// Calls body(i) for each chunk (*this)[i], of the list or of a group, on all threads.
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
