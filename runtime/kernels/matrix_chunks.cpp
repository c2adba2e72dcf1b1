#include "runtime/kernels/matrix_chunks.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace shoal {
namespace {

constexpr int64_t kChunkElements = 8192;
constexpr int64_t kGrainElements = 32768;

}  // namespace

MatrixChunks::MatrixChunks(at::TensorList tensors, at::IntArrayRef num_matrices) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t per_matrix = num_matrices[i] > 0 ? tensors[i].numel() / num_matrices[i] : 0;
    for (int64_t matrix = 0; matrix < num_matrices[i]; ++matrix) {
      for (int64_t done = 0; done < per_matrix; done += kChunkElements) {
        const int64_t size = std::min(kChunkElements, per_matrix - done);
        chunks_.push_back({i, num_matrices_, matrix * per_matrix + done, size, num_elements_});
        num_elements_ += size;
      }
      ++num_matrices_;
    }
  }
}

std::vector<MatrixChunks::Group> MatrixChunks::groups_of(int64_t elements) const {
  std::vector<Group> groups;
  for (size_t first = 0; first < size();) {
    size_t last = first;
    while (last < size()) {
      size_t end = last;  // of the next matrix
      while (end < size() && chunks_[end].matrix == chunks_[last].matrix) ++end;
      const MatrixChunk& last_chunk = chunks_[end - 1];
      if (last > first && last_chunk.offset + last_chunk.size - chunks_[first].offset > elements)
        break;
      last = end;
    }
    groups.push_back({first, last});
    first = last;
  }
  return groups;
}

void MatrixChunks::for_each(const Group& group, const std::function<void(size_t)>& body) const {
  if (group.first == group.last) return;
  const auto first = chunks_.begin() + static_cast<std::ptrdiff_t>(group.first);
  const auto last = chunks_.begin() + static_cast<std::ptrdiff_t>(group.last);
  const int64_t end_offset = (last - 1)->offset + (last - 1)->size;
  at::parallel_for(first->offset, end_offset, kGrainElements, [&](int64_t begin, int64_t end) {
    const auto starts_before = [](const MatrixChunk& chunk, int64_t offset) {
      return chunk.offset < offset;
    };
    auto chunk = std::lower_bound(first, last, begin, starts_before);
    for (; chunk != last && chunk->offset < end; ++chunk) {
      body(static_cast<size_t>(chunk - chunks_.begin()));
    }
  });
}

}  // namespace shoal
