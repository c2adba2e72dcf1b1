#include "runtime/data/images/interleaved_image.h"

#include <fmt/format.h>

namespace shoal {

std::string size_problem(int64_t height, int64_t width) {
  if (height < 1 || width < 1) return "it has no pixels";
  if (height <= kMostPixels / width) return {};
  return fmt::format("{} x {} pixels are more than the {} million allowed", height, width,
                     kMostPixels / 1'000'000);
}

}  // namespace shoal
