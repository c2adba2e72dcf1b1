#pragma once

#include <cstdint>

#include "moe/routing/decimal.h"

namespace shoal {

/// Capacity of a unit, exact and without checks; also for kernels.
struct CapacityRule {
  Decimal factor;
  int64_t num_units, min, align;

  /// unit_capacity of capacity.h.
  constexpr int64_t rows_for(int64_t num_choices) const {
    const int64_t share = exact_ceil_share(num_choices, factor, num_units);
    const int64_t steps = share == 0 ? 0 : (share - 1) / align + 1;
    const int64_t aligned = steps > kLargestShare / align ? kLargestShare : steps * align;
    return min > aligned ? min : aligned;
  }
};

}  // namespace shoal
