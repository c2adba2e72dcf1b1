#include "models/vision/sin_cos_positions.h"

// S patches  C width
namespace shoal {

torch::Tensor sin_cos_positions(int64_t rows, int64_t columns, int64_t width,
                                const torch::TensorOptions& options) {
  TORCH_CHECK(width % 4 == 0, "sin_cos_positions: width ", width, " is not a multiple of 4");
  if (options.device().is_meta()) return torch::empty({rows * columns, width}, options);
  constexpr double kBase = 10000.0;
  const auto wide = torch::TensorOptions(torch::kFloat64);
  const int64_t quarter = width / 4;
  const torch::Tensor frequency =
      torch::pow(kBase, -torch::arange(quarter, wide) / static_cast<double>(quarter));
  const torch::Tensor row_S = torch::arange(rows, wide).repeat_interleave(columns);
  const torch::Tensor column_S = torch::arange(columns, wide).repeat({rows});
  const torch::Tensor by_row = row_S.outer(frequency), by_column = column_S.outer(frequency);
  return torch::cat({by_row.sin(), by_row.cos(), by_column.sin(), by_column.cos()}, 1).to(options);
}

}  // namespace shoal
