#include "sparse/layers/low_rank_branch.h"

#include <ATen/ops/linear.h>

#include <cmath>

namespace shoal {

LowRankBranch::LowRankBranch(int64_t rows, int64_t columns, int64_t rank,
                             const torch::TensorOptions& options) {
  // U V has the variance of a Glorot-uniform matrix.
  const auto m = static_cast<double>(rows), n = static_cast<double>(columns);
  const double u_variance = 2.0 * n / ((m + n) * static_cast<double>(rank));
  u = add_parameter("u", {rows, rank}, options, Init::normal(std::sqrt(u_variance)));
  v = add_parameter("v", {rank, columns}, options, Init::normal(1.0 / std::sqrt(n)));
  gate_weight = add_parameter("gate_weight", {columns}, options, Init::zeros());
  gate_bias = add_parameter("gate_bias", {1}, options, Init::zeros());
}

torch::Tensor LowRankBranch::join(const torch::Tensor& x, const torch::Tensor& product) const {
  const torch::Dtype dtype = x.scalar_type();
  const torch::Tensor gate =
      at::linear(x, gate_weight.to(dtype).unsqueeze(0), gate_bias.to(dtype)).sigmoid();
  const torch::Tensor low_rank = at::linear(at::linear(x, v.to(dtype)), u.to(dtype));
  return product + gate * (low_rank - product);
}

}  // namespace shoal
