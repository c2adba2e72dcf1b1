#pragma once

#include "sparse/kernels/break_even.h"

namespace shoal {

/// Measures the break-even densities of all kernels on this machine with the current number of
/// threads, for 768 x 768 float32 layers, in about ten seconds. A kernel counts as faster if it is
/// by a tenth; densities are at most 0.9.
BreakEvens measure_break_evens();

}  // namespace shoal
