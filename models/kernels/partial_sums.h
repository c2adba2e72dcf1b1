#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace shoal {

/// Sums that the threads of one parallel loop form each for itself, such as weight gradients over
/// tiles of rows. Threads take equal runs of the loop, and their parts are added in thread order,
/// so a result depends on the number of threads and on nothing else.
class PartialSums {
 public:
  /// One sum for each shape, zero at the start.
  PartialSums(const std::vector<at::IntArrayRef>& shapes, const torch::TensorOptions& options);
  /// The calling thread's part of sum i.
  template <class Real>
  Real* own(size_t i) {
    return parts_.data_ptr<Real>() + thread() * parts_.size(1) + offsets_[i];
  }
  /// The sums, in order of the shapes.
  std::vector<torch::Tensor> totals() const;

 private:
  static int64_t thread();

  std::vector<std::vector<int64_t>> shapes_;
  std::vector<int64_t> offsets_;
  torch::Tensor parts_;  ///< [threads, values]
};

}  // namespace shoal
