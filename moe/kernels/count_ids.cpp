#include "moe/kernels/count_ids.h"

namespace shoal {

torch::Tensor count_ids(const torch::Tensor& ids, int64_t num_ids) {
  TORCH_CHECK(ids.scalar_type() == torch::kInt64, "count_ids: ids are ", ids.scalar_type());
  if (!ids.is_cpu()) {
    const torch::Tensor place = ids.flatten() + 1;  // place 0 takes the negative ones
    torch::Tensor count = torch::zeros({num_ids + 1}, ids.options());
    count.index_add_(0, place.clamp_min(0), torch::ones_like(place));
    return count.narrow(0, 1, num_ids);
  }
  const torch::Tensor flat = ids.contiguous();
  torch::Tensor count_of_id = torch::zeros({num_ids}, ids.options());
  int64_t* count = count_of_id.data_ptr<int64_t>();
  const int64_t* first = flat.const_data_ptr<int64_t>();
  for (const int64_t* id = first; id < first + flat.numel(); ++id) {
    TORCH_CHECK(*id < num_ids, "count_ids: ", *id, " of ", num_ids);
    if (*id >= 0) ++count[*id];
  }
  return count_of_id;
}

}  // namespace shoal
