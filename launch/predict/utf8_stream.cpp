#include "launch/predict/utf8_stream.h"

#include <utility>

#include "runtime/base/utf8.h"

namespace shoal {

std::string Utf8Stream::add(std::string_view bytes) {
  held_ += bytes;
  std::string whole;
  while (!held_.empty()) {
    const Utf8Check check = check_utf8(held_);
    // A byte that is no UTF-8 goes out as it is.
    const size_t size = check.valid > 0 ? check.valid : (check.is_cut ? 0 : 1);
    if (size == 0) break;
    whole += held_.substr(0, size);
    held_.erase(0, size);
  }
  return whole;
}

std::string Utf8Stream::finish() { return std::exchange(held_, {}); }

}  // namespace shoal
