#pragma once

#include <cstdint>

#include "runtime/random/philox.h"

namespace shoal::philox {

/// Blocks that are drawn together, so that compilers can use vectors.
inline constexpr int kBatch = 16;

/// Which blocks: (id[i], block[i]).
struct Batch {
  uint64_t id[kBatch];
  uint32_t block[kBatch];
};

/// Draws the kBatch blocks into out[kBatch · kLanes<Real>].
using DrawBatch = void (*)(const StreamKey& key, const Batch& batch, void* out);

/// The fastest version for this machine. `is_double`: Real is double, else float.
DrawBatch draw_batch(Distribution distribution, bool is_double);

}  // namespace shoal::philox
