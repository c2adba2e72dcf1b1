#pragma once

#include "sparse/kernels/break_even.h"

namespace shoal {

/// Measures on this machine, with the current number of threads, the densities above which dense
/// products are faster than each kernel: float32 layers of 768 x 768 weights, about ten seconds. A
/// kernel must be at least 10 % faster; its density is at most 0.9.
BreakEvens measure_break_evens();

}  // namespace shoal
