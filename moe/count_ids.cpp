#include "moe/count_ids.h"

#include <torch/library.h>

#include "runtime/operator.h"

namespace shoal {
namespace {

torch::Tensor count_ids_in_steps(const torch::Tensor& ids, int64_t num_ids) {
  const torch::Tensor place = ids.flatten() + 1;  // place 0 takes the negative ones
  torch::Tensor count = torch::zeros({num_ids + 1}, ids.options());
  count.index_add_(0, place.clamp_min(0), torch::ones_like(place));
  return count.narrow(0, 1, num_ids);
}

torch::Tensor count_ids_cpu(const torch::Tensor& ids, int64_t num_ids) {
  torch::Tensor count_of_id = torch::zeros({num_ids}, ids.options());
  int64_t* count = count_of_id.data_ptr<int64_t>();
  const int64_t* first = ids.const_data_ptr<int64_t>();
  for (const int64_t* id = first; id < first + ids.numel(); ++id) {
    TORCH_CHECK(*id < num_ids, "count_ids: ", *id, " of ", num_ids);
    if (*id >= 0) ++count[*id];
  }
  return count_of_id;
}

}  // namespace

torch::Tensor count_ids(const torch::Tensor& ids, int64_t num_ids) {
  static const Operator<torch::Tensor(const torch::Tensor&, int64_t)> op("shoal::count_ids");
  return op(ids.contiguous(), num_ids);
}

TORCH_LIBRARY_FRAGMENT(shoal, m) { m.def("count_ids(Tensor ids, int num_ids) -> Tensor"); }
TORCH_LIBRARY_IMPL(shoal, CompositeExplicitAutograd, m) { m.impl("count_ids", count_ids_in_steps); }
TORCH_LIBRARY_IMPL(shoal, CPU, m) { m.impl("count_ids", count_ids_cpu); }

}  // namespace shoal
