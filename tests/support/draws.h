#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/random/philox.h"

namespace shoal::testing {

/// Numbers of one random case, in order; cases differ by their number.
class Draws {
 public:
  explicit Draws(uint64_t number)
      : key_(philox::stream_key(/*seed=*/1, /*purpose=*/0, /*layer=*/0, number)) {}
  /// An integer in [0, count).
  size_t below(size_t count) { return philox::scale_to(philox::words_at(key_, 0, next_++), count); }

 private:
  philox::StreamKey key_;
  uint32_t next_ = 0;
};

}  // namespace shoal::testing
