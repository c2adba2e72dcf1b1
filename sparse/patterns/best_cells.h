#pragma once

#include <torch/types.h>

#include <cstdint>

// C cells
namespace shoal {

/// Selects the `count` eligible cells with the highest scores, or all if there are fewer: bool [C].
/// Ties go to the lower cell index; -0 equals 0. Scores [C] must not be NaN; is_eligible bool [C],
/// undefined: every cell.
torch::Tensor best_cells(const torch::Tensor& score_C, int64_t count,
                         const torch::Tensor& is_eligible_C = {});

/// best_cells for each row, with `count` cells per row: [R, C] -> bool [R, C].
torch::Tensor best_of_rows(const torch::Tensor& score_RC, int64_t count);

}  // namespace shoal
