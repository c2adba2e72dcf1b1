#pragma once

#include <torch/types.h>

#include <cstdint>

// C cells
namespace shoal {

/// The `count` cells with the highest scores among the eligible ones, or all of those if fewer:
/// bool [C]. Ties go to the lower cell; -0 and 0 are equal. Scores [C], not NaN; is_eligible bool
/// [C], undefined: every cell.
torch::Tensor best_cells(const torch::Tensor& score_C, int64_t count,
                         const torch::Tensor& is_eligible_C = {});

/// best_cells of each row, [R, C] -> bool [R, C], `count` in each.
torch::Tensor best_of_rows(const torch::Tensor& score_RC, int64_t count);

}  // namespace shoal
