#pragma once

#include <cstdint>

#include "runtime/random/random_stream.h"

namespace shoal {

/// A random permutation of [0, size) that is computed point by point and stores nothing: the data
/// order of an epoch is KeyedPermutation({seed, Purpose::kDataOrder, 0, epoch}, samples).
///
/// A Feistel network over [0, a) × [0, b) with a·b barely above size; points that leave the range
/// walk on until they are back in it. Source: Black and Rogaway 2002, "Ciphers with arbitrary
/// finite domains".
class KeyedPermutation {
 public:
  /// size >= 1; throws std::invalid_argument otherwise.
  KeyedPermutation(const Stream& stream, int64_t size);

  int64_t size() const { return static_cast<int64_t>(size_); }
  /// 0 <= position < size(); throws std::out_of_range otherwise.
  int64_t at(int64_t position) const;

 private:
  uint64_t encrypt(uint64_t point) const;

  philox::StreamKey key_;
  uint64_t size_;
  uint64_t columns_;  ///< a
  uint64_t rows_;     ///< b
};

}  // namespace shoal
