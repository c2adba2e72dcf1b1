#include "runtime/matrix_chunks.h"

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

void MatrixChunks::for_each(const std::function<void(size_t)>& body) const {
  at::parallel_for(0, num_elements_, kGrainElements, [&](int64_t begin, int64_t end) {
    const auto starts_before = [](const MatrixChunk& chunk, int64_t offset) {
      return chunk.offset < offset;
    };
    auto chunk = std::lower_bound(chunks_.begin(), chunks_.end(), begin, starts_before);
    for (; chunk != chunks_.end() && chunk->offset < end; ++chunk) {
      body(static_cast<size_t>(chunk - chunks_.begin()));
    }
  });
}

}  // namespace shoal
