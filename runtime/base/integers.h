#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace shoal {

/// The smallest multiple of `multiple` that is at least `value`.
inline int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// The divisors of `number` that are at most 4,096, ascending. Error messages suggest them.
inline std::vector<int64_t> divisors(int64_t number) {
  constexpr int64_t kMostListed = 4096;
  std::vector<int64_t> result;
  for (int64_t i = 1; i <= std::min(number, kMostListed); ++i) {
    if (number % i == 0) result.push_back(i);
  }
  return result;
}

}  // namespace shoal
