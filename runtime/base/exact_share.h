#pragma once

#include <cstdint>

namespace shoal {

/// A non-negative decimal number, digits * 10^exponent. Counts are multiplied by a recipe's
/// decimals (capacity factor, density) in this exact form; with doubles a ceil or floor could be
/// off by one.
struct Decimal {
  int64_t digits = 0;
  int exponent = 0;
};

/// Returns the shortest decimal that parses to the double `value`: 105 * 10^-2 for 1.05, although
/// no double is exactly 1.05. Throws TORCH_CHECK unless `value` is finite and not negative.
Decimal decimal_of(double value);

/// Return ceil(count * factor / divisor) and floor(count * share), exact, at most 2^62. Throw
/// TORCH_CHECK unless count >= 0 and divisor >= 1.
int64_t ceil_share(int64_t count, const Decimal& factor, int64_t divisor);
int64_t floor_share(int64_t count, const Decimal& share);

/// A quotient, numerator / denominator.
struct ExactShare {
  __int128 numerator = 0, denominator = 1;
};
inline constexpr int64_t kLargestShare = int64_t{1} << 62;  ///< larger results become this

/// Returns count * factor / divisor, unchecked. Exact from 1 to 2^62: count * digits (at most 17)
/// fits 120 bits. Otherwise the loops stop early, at a result that also lies below 1 or above 2^62.
constexpr ExactShare exact_share(int64_t count, const Decimal& factor, int64_t divisor) {
  ExactShare result{static_cast<__int128>(count) * factor.digits, divisor};
  if (result.numerator == 0) return result;
  for (int e = factor.exponent; e > 0; --e) {
    if (result.numerator >= result.denominator * kLargestShare) break;
    result.numerator *= 10;
  }
  for (int e = factor.exponent; e < 0; ++e) {
    if (result.denominator > result.numerator) break;
    result.denominator *= 10;
  }
  return result;
}

/// Returns floor(numerator / denominator), at most 2^62, by shifts and subtractions: a GPU has no
/// division of such numbers. The quotient must not be negative.
constexpr int64_t exact_quotient(const ExactShare& share) {
  if (share.numerator >> 62 >= share.denominator) return kLargestShare;
  int bit = 0;
  while (share.numerator >> bit >= share.denominator) ++bit;
  int64_t quotient = 0;
  __int128 left = share.numerator;
  for (--bit; bit >= 0; --bit) {
    if (left >> bit < share.denominator) continue;
    left -= share.denominator << bit;
    quotient |= int64_t{1} << bit;
  }
  return quotient;
}

/// Returns ceil_share(count, factor, divisor) without checking the arguments; kernels can call it.
constexpr int64_t exact_ceil_share(int64_t count, const Decimal& factor, int64_t divisor) {
  ExactShare share = exact_share(count, factor, divisor);
  if (share.numerator == 0) return 0;
  --share.numerator;
  const int64_t quotient = exact_quotient(share);
  return quotient < kLargestShare ? quotient + 1 : kLargestShare;
}

/// Capacity of the experts of a Mixture-of-Experts layer: how many rows (tokens on their way to one
/// expert) each takes from a routing group, the samples among which tokens compete. Kernels use it.
struct CapacityRule {
  Decimal factor;                 ///< capacity factor
  int64_t num_units, min, align;  ///< experts; least capacity; multiple to round up to

  /// Returns max(min, share rounded up to a multiple of `align`), unchecked; share is
  /// ceil(num_choices * factor / num_units). `num_choices`: the group's tokens times k.
  constexpr int64_t rows_for(int64_t num_choices) const {
    const int64_t share = exact_ceil_share(num_choices, factor, num_units);
    const int64_t steps = share == 0 ? 0 : (share - 1) / align + 1;
    const __int128 exact = static_cast<__int128>(steps) * align;
    const int64_t aligned = exact > kLargestShare ? kLargestShare : static_cast<int64_t>(exact);
    return min > aligned ? min : aligned;
  }
};

}  // namespace shoal
