#pragma once

#include <cstdint>

// V vocabulary
namespace shoal {

/// Cross entropy of a row of logits with a label, natural logarithms; NaN if a logit is not finite.
/// If `is_differentiated` the logits are replaced by their gradient, softmax - one_hot(label). One
/// thread; sums are computed in lanes, equal on all instruction sets.
double cross_entropy_row(float* logits_V, int64_t vocabulary, int64_t label,
                         bool is_differentiated);
double cross_entropy_row(double* logits_V, int64_t vocabulary, int64_t label,
                         bool is_differentiated);

}  // namespace shoal
