#include "moe/kernels/row_top_k.h"

#include <torch/library.h>

#include "runtime/device/operator.h"

namespace shoal {

torch::Tensor top_k(const torch::Tensor& score_TU, int64_t k) {
  TORCH_CHECK(score_TU.dim() == 2 && k >= 1 && k <= score_TU.size(1), "top_k: ", k,
              " of the columns of ", score_TU.sizes());
  static const Operator<torch::Tensor(const torch::Tensor&, int64_t)> op("shoal::top_k");
  return op(score_TU.contiguous(), k);
}

torch::Tensor mark_lowest(const torch::Tensor& score_T, const std::vector<int64_t>& offsets,
                          const std::vector<int64_t>& counts) {
  TORCH_CHECK(score_T.dim() == 1 && offsets.size() == counts.size() + 1 &&
                  offsets.back() == score_T.size(0),
              "mark_lowest: ", offsets.size(), " offsets and ", counts.size(), " counts for ",
              score_T.sizes());
  static const Operator<torch::Tensor(const torch::Tensor&, c10::IntArrayRef, c10::IntArrayRef)> op(
      "shoal::mark_lowest");
  return op(score_T.contiguous(), offsets, counts);
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def("top_k(Tensor score, int k) -> Tensor");
  m.def("mark_lowest(Tensor score, int[] offsets, int[] counts) -> Tensor");
}

}  // namespace shoal
