#include "moe/kernels/unit_rows.h"

#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>
#include <numeric>

#include "runtime/device/device_copy.h"

// R rows on this rank  u units on this rank
namespace shoal {

std::vector<int64_t> UnitRows::to_host() const {
  if (is_on_host()) return rows_u_;
  HostCopy copy(end_u_);
  const torch::Tensor& end = copy.wait();
  const int32_t* first = end.const_data_ptr<int32_t>();
  std::vector<int64_t> rows(first, first + end.numel());
  std::adjacent_difference(rows.begin(), rows.end(), rows.begin());
  return rows;
}

UnitRows UnitRows::part(const UnitRange& range) const {
  const auto first = rows_u().begin() + range.first;
  TORCH_CHECK(std::all_of(rows_u_.begin(), first, [](int64_t rows) { return rows == 0; }),
              "units before unit ", range.first, " have rows");
  return {{first, first + range.count},
          end_u_.defined() ? end_u_.narrow(0, range.first, range.count) : torch::Tensor()};
}

torch::Tensor ends_of(at::IntArrayRef rows_u, const torch::Device& gpu) {
  const torch::Tensor host = torch::empty({static_cast<int64_t>(rows_u.size())},
                                          torch::TensorOptions(torch::kInt32).pinned_memory(true));
  int32_t* end = host.data_ptr<int32_t>();
  int64_t sum = 0;
  for (const int64_t rows : rows_u) *end++ = static_cast<int32_t>(sum += rows);
  return host.to(gpu, /*non_blocking=*/true);
}

UnitRange part_of(int64_t num_units, int64_t part, int64_t num_parts) {
  const int64_t first = num_units * part / num_parts;
  return {first, num_units * (part + 1) / num_parts - first};
}

torch::Tensor run_on_host_counts(
    const torch::Tensor& rows, const UnitRows& rows_u,
    const std::function<torch::Tensor(const torch::Tensor&, const std::vector<int64_t>&)>& run) {
  if (rows_u.is_on_host()) return run(rows, rows_u.rows_u());
  const std::vector<int64_t> counts = rows_u.to_host();
  const int64_t used = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const torch::Tensor result = run(rows.narrow(0, 0, used), counts);
  const int64_t padding = rows.size(0) - used;
  return padding == 0 ? result : at::constant_pad_nd(result, {0, 0, 0, padding});
}

}  // namespace shoal
