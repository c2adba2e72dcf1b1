#pragma once

#include <ATen/Parallel.h>
#include <c10/util/accumulate.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace shoal {

/// Per-thread accumulators for a parallel loop, such as weight gradients over tiles of rows.
/// Threads take equal ranges of the loop and their sums are added in thread order, so results
/// depend only on the number of threads.
class PartialSums {
 public:
  /// Allocates one sum per shape and thread, all zero.
  PartialSums(const std::vector<at::IntArrayRef>& shapes, const torch::TensorOptions& options) {
    constexpr int64_t kAlignment = 16;  // elements: every sum begins on a cache line
    int64_t size = 0;
    for (const at::IntArrayRef shape : shapes) {
      shapes_.push_back(shape.vec());
      offsets_.push_back(size);
      size += (c10::multiply_integers(shape) + kAlignment - 1) / kAlignment * kAlignment;
    }
    parts_ = torch::zeros({at::get_num_threads(), size}, options);
  }
  /// The calling thread's accumulator of sum i.
  template <class Real>
  Real* own(size_t i) {
    return parts_.data_ptr<Real>() + at::get_thread_num() * parts_.size(1) + offsets_[i];
  }
  /// Totals over all threads, in order of the shapes.
  std::vector<torch::Tensor> totals() const {
    const torch::Tensor total = parts_.size(0) == 1 ? parts_[0] : parts_.sum(0);
    std::vector<torch::Tensor> result;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      result.push_back(
          total.narrow(0, offsets_[i], c10::multiply_integers(shapes_[i])).view(shapes_[i]));
    }
    return result;
  }

 private:
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<int64_t> offsets_;
  torch::Tensor parts_;  ///< [threads, values]
};

}  // namespace shoal
