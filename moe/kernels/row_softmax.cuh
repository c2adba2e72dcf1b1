#pragma once

#include <cuda_runtime.h>

namespace shoal::device {

/// exp(x) for x <= 0, in float32 not below e^-87, as on the CPU; NaN of a NaN or an infinity.
__device__ inline float exp_below(float x) { return expf(x < -87.0f ? -87.0f : x) + 0.0f * x; }
__device__ inline double exp_below(double x) { return exp(x) + 0.0 * x; }

}  // namespace shoal::device
