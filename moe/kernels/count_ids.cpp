#include "moe/kernels/count_ids.h"

#include <torch/library.h>

#include "runtime/device/operator.h"

namespace shoal {
namespace {

torch::Tensor count_ids_in_steps(const torch::Tensor& ids, int64_t num_ids) {
  const torch::Tensor place = ids.flatten() + 1;  // place 0 takes the negative ones
  torch::Tensor count = torch::zeros({num_ids + 1}, ids.options());
  count.index_add_(0, place.clamp_min(0), torch::ones_like(place));
  return count.narrow(0, 1, num_ids);
}

}  // namespace

torch::Tensor count_ids(const torch::Tensor& ids, int64_t num_ids) {
  static const Operator<torch::Tensor(const torch::Tensor&, int64_t)> op("shoal::count_ids");
  TORCH_CHECK(ids.scalar_type() == torch::kInt64, "count_ids: ids are ", ids.scalar_type());
  return op(ids.contiguous(), num_ids);
}

TORCH_LIBRARY_FRAGMENT(shoal, m) { m.def("count_ids(Tensor ids, int num_ids) -> Tensor"); }
TORCH_LIBRARY_IMPL(shoal, CompositeExplicitAutograd, m) { m.impl("count_ids", count_ids_in_steps); }

}  // namespace shoal
