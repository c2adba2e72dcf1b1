#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/module/parameter.h"

namespace shoal {

/// U(-a, a) with a = 1 / sqrt(fan_in), as torch.nn initialises linear layers and convolutions.
inline Init fan_in_uniform(int64_t fan_in) {
  return Init::uniform(1.0 / std::sqrt(static_cast<double>(fan_in)));
}

}  // namespace shoal
