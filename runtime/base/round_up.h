#pragma once

#include <cstdint>

namespace shoal {

/// The least multiple that is not below the value.
inline int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace shoal
