#pragma once

#include <torch/types.h>

#include <cstdint>

// C cells
namespace shoal {

/// The `count` cells of the highest scores among those that are eligible: bool [C]; all of them
/// where there are fewer. Of equal scores the lower cell is taken; -0 and 0 are equal. Scores [C],
/// not NaN; is_eligible bool [C], undefined: every cell.
torch::Tensor best_cells(const torch::Tensor& score_C, int64_t count,
                         const torch::Tensor& is_eligible_C = {});

/// best_cells of each row, [R, C] -> bool [R, C], with as many of each row.
torch::Tensor best_of_rows(const torch::Tensor& score_RC, int64_t count);

}  // namespace shoal
