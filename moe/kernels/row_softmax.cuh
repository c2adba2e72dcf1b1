#pragma once

#include <cuda_runtime.h>

namespace shoal::device {

/// exp(logit - highest), in float32 not below e^-87, as on the CPU; NaN of a logit that is NaN or
/// infinite. The difference of two finite ones may be infinite.
__device__ inline float exp_below(float logit, float highest) {
  const float below = logit - highest;
  return expf(below < -87.0f ? -87.0f : below) + 0.0f * logit;
}
__device__ inline double exp_below(double logit, double highest) {
  return exp(logit - highest) + 0.0 * logit;
}

}  // namespace shoal::device
