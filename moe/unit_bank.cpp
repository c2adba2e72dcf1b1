#include "moe/unit_bank.h"

namespace shoal {

torch::Tensor UnitBank::weighted(const torch::Tensor& rows_RD, const UnitRows& rows_u,
                                 const torch::Tensor& weight_R) {
  return (forward(rows_RD, rows_u) * weight_R.unsqueeze(1)).to(rows_RD.scalar_type());
}

torch::Tensor UnitBank::visit(const torch::Tensor& x_TD, const TokenRows& rows) {
  return combine_rows(forward(gather_rows(x_TD, rows.index), rows.rows_u), rows.weight_A,
                      rows.index);
}

}  // namespace shoal
