#include "moe/routing/decimal.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <cmath>
#include <string_view>

namespace shoal {

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
  return exact_ceil_share(count, factor, divisor);
}

int64_t floor_share(int64_t count, const Decimal& share) {
  TORCH_CHECK(count >= 0, "floor_share of ", count);
  const ExactShare product = exact_share(count, share, 1);
  const __int128 floor = product.numerator / product.denominator;
  return floor < kLargestShare ? static_cast<int64_t>(floor) : kLargestShare;
}

}  // namespace shoal
