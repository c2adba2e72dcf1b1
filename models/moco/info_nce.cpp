#include "models/moco/info_nce.h"

#include <ATen/ops/cross_entropy_loss.h>

#include <numeric>
#include <vector>

#include "runtime/device/real_types.h"

// b samples on this rank  B samples on all ranks  D features
namespace shoal {

torch::Tensor unit_rows(const torch::Tensor& x_bD) {
  constexpr double kLeastLength = 1e-12;
  const torch::Tensor wide = at_least_float32(x_bD);
  return wide / wide.norm(2, /*dim=*/{1}, /*keepdim=*/true).clamp_min(kLeastLength);
}

GatheredRows gather_rows(const torch::Tensor& rows, Communicator& world) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor own = rows.detach().contiguous();
  if (world.size() == 1) return {own, 0};
  const auto ranks = static_cast<size_t>(world.size());
  const torch::Tensor count_r = torch::empty({world.size()}, own.options().dtype(torch::kInt64));
  world.start_all_gather(count_r.new_full({1}, own.size(0)), count_r, RowCounts(ranks, 1)).wait();
  const torch::Tensor host_r = count_r.to(torch::kCPU);
  const RowCounts counts(host_r.const_data_ptr<int64_t>(),
                         host_r.const_data_ptr<int64_t>() + ranks);
  std::vector<int64_t> sizes = own.sizes().vec();
  sizes[0] = sum(counts);
  torch::Tensor all = own.new_empty(sizes);
  world.start_all_gather(own, all, counts).wait();
  return {all, std::accumulate(counts.begin(), counts.begin() + world.rank(), int64_t{0})};
}

torch::Tensor contrast(const torch::Tensor& query_bD, const GatheredRows& key_BD,
                       double temperature) {
  return unit_rows(query_bD).mm(key_BD.rows.t()) / temperature;
}

torch::Tensor own_keys(const torch::Tensor& query_bD, const GatheredRows& key_BD) {
  return torch::arange(key_BD.first, key_BD.first + query_bD.size(0),
                       query_bD.options().dtype(torch::kInt64));
}

torch::Tensor info_nce_sum(const torch::Tensor& query_bD, const GatheredRows& key_BD,
                           double temperature) {
  return 2 * temperature *
         at::cross_entropy_loss(contrast(query_bD, key_BD, temperature), own_keys(query_bD, key_BD),
                                {}, at::Reduction::Sum);
}

}  // namespace shoal
