#pragma once

#include <cstdint>

namespace shoal {

/// A non-negative decimal number, digits * 10^exponent, without rounding.
struct Decimal {
  int64_t digits = 0;
  int exponent = 0;
};

/// The shortest decimal that parses to `value`: 1.05 is 105 * 10^-2 exactly, though no double is.
/// TORCH_CHECK unless finite and not negative.
Decimal decimal_of(double value);

/// ceil(count * factor / divisor) and floor(count * share), exact, saturating at 2^62.
/// count >= 0, divisor >= 1.
int64_t ceil_share(int64_t count, const Decimal& factor, int64_t divisor);
int64_t floor_share(int64_t count, const Decimal& share);

/// A share in exact arithmetic.
struct ExactShare {
  __int128 numerator = 0, denominator = 1;
};
inline constexpr int64_t kLargestShare = int64_t{1} << 62;

/// count * factor / divisor. digits has at most 17 places (57 bits), so count * digits fits 120
/// bits. The loops stop at exponents where the quotient is already above or below every count.
constexpr ExactShare exact_share(int64_t count, const Decimal& factor, int64_t divisor) {
  ExactShare result{static_cast<__int128>(count) * factor.digits, divisor};
  if (result.numerator == 0) return result;
  for (int e = factor.exponent; e > 0; --e) {
    if (result.numerator / result.denominator >= kLargestShare) break;
    result.numerator *= 10;
  }
  for (int e = factor.exponent; e < 0; ++e) {
    if (result.denominator > result.numerator) break;
    result.denominator *= 10;
  }
  return result;
}

/// `ceil_share` without its checks.
constexpr int64_t exact_ceil_share(int64_t count, const Decimal& factor, int64_t divisor) {
  const ExactShare share = exact_share(count, factor, divisor);
  const __int128 ceiling =
      share.numerator / share.denominator + (share.numerator % share.denominator == 0 ? 0 : 1);
  return ceiling < kLargestShare ? static_cast<int64_t>(ceiling) : kLargestShare;
}

/// Capacity of a unit, exact and without checks; also for kernels.
struct CapacityRule {
  Decimal factor;
  int64_t num_units, min, align;

  /// unit_capacity of capacity.h, without its checks.
  constexpr int64_t rows_for(int64_t num_choices) const {
    const int64_t share = exact_ceil_share(num_choices, factor, num_units);
    const int64_t steps = share == 0 ? 0 : (share - 1) / align + 1;
    const int64_t aligned = steps > kLargestShare / align ? kLargestShare : steps * align;
    return min > aligned ? min : aligned;
  }
};

}  // namespace shoal
