#pragma once

#include <cstdint>

namespace shoal {

/// The upper half of a float32: what kernels and their launchers call bfloat16. Of the layout of
/// c10::BFloat16.
struct Bfloat16 {
  uint16_t bits;
};

}  // namespace shoal
