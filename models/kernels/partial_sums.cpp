#include "models/kernels/partial_sums.h"

#include <ATen/Parallel.h>
#include <c10/util/accumulate.h>

namespace shoal {

PartialSums::PartialSums(const std::vector<at::IntArrayRef>& shapes,
                         const torch::TensorOptions& options) {
  constexpr int64_t kAlignment = 16;  // elements: every sum begins on a cache line
  int64_t size = 0;
  for (const at::IntArrayRef shape : shapes) {
    shapes_.push_back(shape.vec());
    offsets_.push_back(size);
    size += (c10::multiply_integers(shape) + kAlignment - 1) / kAlignment * kAlignment;
  }
  parts_ = torch::zeros({at::get_num_threads(), size}, options);
}

int64_t PartialSums::thread() { return at::get_thread_num(); }

std::vector<torch::Tensor> PartialSums::totals() const {
  const torch::Tensor total = parts_.size(0) == 1 ? parts_[0] : parts_.sum(0);
  std::vector<torch::Tensor> result;
  for (size_t i = 0; i < shapes_.size(); ++i) {
    result.push_back(
        total.narrow(0, offsets_[i], c10::multiply_integers(shapes_[i])).view(shapes_[i]));
  }
  return result;
}

}  // namespace shoal
