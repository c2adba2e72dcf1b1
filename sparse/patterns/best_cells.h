#pragma once

#include <torch/types.h>

#include <cstdint>

// C cells (sets of weights that a mask switches on or off together)  R rows of scores
namespace shoal {

/// Returns a bool [C], true for the `count` eligible cells of the highest scores, or for all
/// eligible ones if fewer. Masks are chosen, pruned and grown with it. Ties go to the lower index;
/// -0 equals 0. Scores must not be NaN. is_eligible_C: bool [C]; undefined: all are eligible.
torch::Tensor best_cells(const torch::Tensor& score_C, int64_t count,
                         const torch::Tensor& is_eligible_C = {});

/// True for each row's `count` highest scores, ties to the lower column: [R, C] -> bool [R, C].
torch::Tensor best_of_rows(const torch::Tensor& score_RC, int64_t count);

}  // namespace shoal
