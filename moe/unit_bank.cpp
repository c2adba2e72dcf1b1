#include "moe/unit_bank.h"

namespace shoal {

torch::Tensor UnitBank::visit(const torch::Tensor& x_TD, const TokenRows& rows) {
  return combine_rows(forward(gather_rows(x_TD, rows.index), rows.rows_u), rows.weight_A,
                      rows.index);
}

}  // namespace shoal
