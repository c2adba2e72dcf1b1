#pragma once

#include "sparse/kernels/break_even.h"

namespace shoal {

/// Measures on this machine, with the threads that are set, from which densities on dense products
/// are faster than each kernel: layers of 768 x 768 weights, in float32, about ten seconds. A
/// kernel has to be a tenth faster; its density is at most 0.9.
BreakEvens measure_break_evens();

}  // namespace shoal
