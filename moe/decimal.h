#pragma once

#include <cstdint>

namespace shoal {

/// A non-negative decimal number, digits * 10^exponent, without rounding.
struct Decimal {
  int64_t digits = 0;
  int exponent = 0;
};

/// The shortest decimal that reads back as `value`: 1.05 is 105 * 10^-2 exactly, though no double
/// is. TORCH_CHECK unless finite and not negative.
Decimal decimal_of(double value);

/// ceil(count * factor / divisor) and floor(count * share), exact, saturating at 2^62.
/// count >= 0, divisor >= 1.
int64_t ceil_share(int64_t count, const Decimal& factor, int64_t divisor);
int64_t floor_share(int64_t count, const Decimal& share);

}  // namespace shoal
