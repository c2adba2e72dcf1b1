#include "moe/decimal.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <cmath>
#include <string_view>

namespace shoal {
namespace {

using Wide = __int128;
constexpr int64_t kSaturated = int64_t{1} << 62;

struct Fraction {
  Wide numerator, denominator;
};

// digits has at most 17 places (57 bits), so count * digits fits 120 bits. Beyond these exponents
// the quotient is above or below every count anyway.
Fraction times(int64_t count, const Decimal& factor, int64_t divisor) {
  Fraction result{static_cast<Wide>(count) * factor.digits, divisor};
  if (result.numerator == 0) return result;
  for (int e = factor.exponent; e > 0; --e) {
    if (result.numerator / result.denominator >= kSaturated) break;
    result.numerator *= 10;
  }
  for (int e = factor.exponent; e < 0; ++e) {
    if (result.denominator > result.numerator) break;
    result.denominator *= 10;
  }
  return result;
}

int64_t saturate(Wide value) {
  return value < kSaturated ? static_cast<int64_t>(value) : kSaturated;
}

}  // namespace

Decimal decimal_of(double value) {
  TORCH_CHECK(std::isfinite(value) && value >= 0, "not a share or factor: ", value);
  char text[40];
  const auto end =
      std::to_chars(text, text + sizeof(text), value, std::chars_format::scientific).ptr;
  Decimal result;
  bool in_fraction = false;
  for (const char* c = text; c != end; ++c) {
    if (*c == 'e') {
      int exponent = 0;
      const char* first = c[1] == '+' ? c + 2 : c + 1;
      std::from_chars(first, end, exponent);
      result.exponent += exponent;
      break;
    }
    if (*c == '.') {
      in_fraction = true;
      continue;
    }
    result.digits = result.digits * 10 + (*c - '0');
    if (in_fraction) --result.exponent;
  }
  return result;
}

int64_t ceil_share(int64_t count, const Decimal& factor, int64_t divisor) {
  TORCH_CHECK(count >= 0 && divisor >= 1, "ceil_share of ", count, " over ", divisor);
  const Fraction share = times(count, factor, divisor);
  return saturate(share.numerator / share.denominator +
                  (share.numerator % share.denominator == 0 ? 0 : 1));
}

int64_t floor_share(int64_t count, const Decimal& share) {
  TORCH_CHECK(count >= 0, "floor_share of ", count);
  const Fraction product = times(count, share, 1);
  return saturate(product.numerator / product.denominator);
}

}  // namespace shoal
