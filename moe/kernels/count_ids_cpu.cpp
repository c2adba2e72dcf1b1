#include <torch/library.h>
#include <torch/types.h>

#include <cstdint>

namespace shoal {
namespace {

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

TORCH_LIBRARY_IMPL(shoal, CPU, m) { m.impl("count_ids", count_ids_cpu); }

}  // namespace shoal
