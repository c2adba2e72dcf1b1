#pragma once

#include <cstdint>

// V vocabulary
namespace shoal {

/// Cross entropy of one row of logits with a label, in nats; NaN if a logit is not finite. With
/// `is_differentiated` the logits are replaced by their gradient, softmax - one_hot(label). One
/// thread; sums are accumulated in lanes, with equal bits on all instruction sets.
double cross_entropy_row(float* logits_V, int64_t vocabulary, int64_t label,
                         bool is_differentiated);
double cross_entropy_row(double* logits_V, int64_t vocabulary, int64_t label,
                         bool is_differentiated);

}  // namespace shoal
