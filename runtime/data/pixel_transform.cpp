#include "runtime/data/pixel_transform.h"

#include <algorithm>
#include <cstring>

namespace shoal {

double TransformDraws::normal(uint32_t index) const {
  double values[2];
  philox::values_of<philox::Distribution::kNormal>(philox::words_at(key_, id_, index + 1), values);
  return values[0];
}

void TransformDraws::fill(uint32_t first, std::span<uint8_t> bytes) const {
  uint32_t block = first + 1;
  while (!bytes.empty()) {
    const philox::Words words = philox::words_at(key_, id_, block++);
    const size_t count = std::min(bytes.size(), sizeof(words.w));
    std::memcpy(bytes.data(), words.w, count);
    bytes = bytes.subspan(count);
  }
}

void require_pair(std::string_view key, const std::vector<double>& pair, Problems& problems) {
  if (pair.size() == 2 && pair[0] <= pair[1]) return;
  problems.add(key, "must be two numbers, the least first");
}

}  // namespace shoal
