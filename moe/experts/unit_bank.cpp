#include "moe/experts/unit_bank.h"

namespace shoal {

torch::Tensor UnitBank::forward_weighted(const torch::Tensor& rows_RD, const UnitRows& rows_u,
                                         const torch::Tensor& weight_R) {
  return (forward(rows_RD, rows_u) * weight_R.unsqueeze(1)).to(rows_RD.scalar_type());
}

std::vector<UnitBank::ForwardWeighted> UnitBank::split(int64_t num_parts) {
  const ForwardWeighted all = [this](const torch::Tensor& rows_RD, const UnitRows& rows_u,
                                     const torch::Tensor& weight_R) {
    return forward_weighted(rows_RD, rows_u, weight_R);
  };
  return std::vector<ForwardWeighted>(static_cast<size_t>(num_parts), all);
}

torch::Tensor UnitBank::forward_local(const torch::Tensor& x_TD, const TokenRows& rows) {
  return combine_rows(forward(gather_rows(x_TD, rows.index), rows.rows_u), rows.weight_A,
                      rows.index);
}

}  // namespace shoal
