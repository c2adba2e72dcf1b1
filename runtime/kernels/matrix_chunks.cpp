#include "runtime/kernels/matrix_chunks.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace shoal {

MatrixChunks::MatrixChunks(at::TensorList tensors, at::IntArrayRef num_matrices,
                           int64_t chunk_elements) {
  int64_t offset = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t count = num_matrices.empty() ? 1 : num_matrices[i];
    const int64_t per_matrix = count > 0 ? tensors[i].numel() / count : 0;
    for (int64_t matrix = 0; matrix < count; ++matrix) {
      const auto index = std::ssize(first_chunk_) - 1;
      for (int64_t done = 0; done < per_matrix; done += chunk_elements) {
        const int64_t size = std::min(chunk_elements, per_matrix - done);
        chunks_.push_back(
            {static_cast<int64_t>(i), index, matrix * per_matrix + done, size, offset});
        offset += size;
      }
      first_chunk_.push_back(std::ssize(chunks_));
    }
  }
}

std::vector<MatrixChunks::Group> MatrixChunks::groups_of(int64_t elements) const {
  std::vector<Group> groups;
  for (size_t matrix = 0; matrix + 1 < first_chunk_.size(); ++matrix) {
    const auto first = static_cast<size_t>(first_chunk_[matrix]);
    const auto last = static_cast<size_t>(first_chunk_[matrix + 1]);
    if (first == last) continue;
    if (groups.empty() || elements_of(groups.back().first, last) > elements) {
      groups.push_back({first, last});
    }
    groups.back().last = last;
  }
  return groups;
}

void MatrixChunks::for_each(const Group& group, const std::function<void(size_t)>& body) const {
  constexpr int64_t kGrainElements = 32768;
  if (group.first == group.last) return;
  const auto first = chunks_.begin() + static_cast<std::ptrdiff_t>(group.first);
  const auto last = chunks_.begin() + static_cast<std::ptrdiff_t>(group.last);
  const int64_t end_offset = first->offset + elements_of(group.first, group.last);
  at::parallel_for(first->offset, end_offset, kGrainElements, [&](int64_t begin, int64_t end) {
    const auto starts_before = [](const TensorChunk& chunk, int64_t offset) {
      return chunk.offset < offset;
    };
    auto chunk = std::lower_bound(first, last, begin, starts_before);
    for (; chunk != last && chunk->offset < end; ++chunk) {
      body(static_cast<size_t>(chunk - chunks_.begin()));
    }
  });
}

}  // namespace shoal
