#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace shoal {

/// A piece of one matrix, small enough for a core's cache.
struct MatrixChunk {
  size_t tensor = 0;   ///< index in the list
  int64_t matrix = 0;  ///< counted over the list
  int64_t begin = 0;   ///< first element, of the tensor
  int64_t size = 0;
  int64_t offset = 0;  ///< elements before it, over the list
};

/// A list of tensors cut into chunks of a fixed size. Sums taken chunk by chunk and added up in
/// order do not depend on the number of threads.
class MatrixChunks {
 public:
  /// Tensor i stacks num_matrices[i] matrices in dimension 0.
  MatrixChunks(at::TensorList tensors, at::IntArrayRef num_matrices);

  size_t size() const { return chunks_.size(); }
  const MatrixChunk& operator[](size_t index) const { return chunks_[index]; }

  /// Chunks of whole matrices, neighbours in the list: [first, last).
  struct Group {
    size_t first = 0, last = 0;
  };
  /// Cuts the list into groups of at most `elements`, or of one matrix where that is larger.
  std::vector<Group> groups_of(int64_t elements) const;

  /// Calls body(index) for each chunk (of a group), on all threads.
  void for_each(const std::function<void(size_t)>& body) const { for_each({0, size()}, body); }
  void for_each(const Group& group, const std::function<void(size_t)>& body) const;

 private:
  std::vector<MatrixChunk> chunks_;
  int64_t num_matrices_ = 0;
  int64_t num_elements_ = 0;
};

}  // namespace shoal
