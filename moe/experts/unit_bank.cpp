#include "moe/experts/unit_bank.h"

namespace shoal {

torch::Tensor UnitBank::weighted(const torch::Tensor& rows_RD, const UnitRows& rows_u,
                                 const torch::Tensor& weight_R) {
  return (forward(rows_RD, rows_u) * weight_R.unsqueeze(1)).to(rows_RD.scalar_type());
}

std::vector<UnitBank::Part> UnitBank::parts(int64_t num_parts) {
  const Part part = [this](const torch::Tensor& rows_RD, const UnitRows& rows_u,
                           const torch::Tensor& weight_R) {
    return weighted(rows_RD, rows_u, weight_R);
  };
  return std::vector<Part>(static_cast<size_t>(num_parts), part);
}

torch::Tensor UnitBank::visit(const torch::Tensor& x_TD, const TokenRows& rows) {
  return combine_rows(forward(gather_rows(x_TD, rows.index), rows.rows_u), rows.weight_A,
                      rows.index);
}

}  // namespace shoal
