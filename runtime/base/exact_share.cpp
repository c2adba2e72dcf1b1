#include "runtime/base/exact_share.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <cmath>
#include <string>

namespace shoal {

Decimal decimal_of(double value) {
  TORCH_CHECK(std::isfinite(value) && value >= 0, "not a share or factor: ", value);
  char text[40];
  std::string digits(
      text, std::to_chars(text, text + sizeof(text), value, std::chars_format::scientific).ptr);
  const size_t end = digits.find('e');  // d.ddde+xx
  const int exponent = std::stoi(digits.substr(end + 1));
  digits.resize(end);
  std::erase(digits, '.');
  return {std::stoll(digits), exponent - static_cast<int>(digits.size()) + 1};
}

int64_t ceil_share(int64_t count, const Decimal& factor, int64_t divisor) {
  TORCH_CHECK(count >= 0 && divisor >= 1, "ceil_share of ", count, " over ", divisor);
  return exact_ceil_share(count, factor, divisor);
}

int64_t floor_share(int64_t count, const Decimal& share) {
  TORCH_CHECK(count >= 0, "floor_share of ", count);
  return exact_quotient(exact_share(count, share, 1));
}

}  // namespace shoal
