#pragma once

#include <cstdint>

#include "runtime/random/random_stream.h"

namespace shoal {

/// A random permutation of [0, size), computed point by point without storing it: the data order of
/// an epoch is KeyedPermutation({seed, Purpose::kDataOrder, 0, epoch}, samples).
///
/// A Feistel network over [0, a) × [0, b) with a·b barely above size, reapplied until below size.
/// Source: Black and Rogaway 2002, "Ciphers with arbitrary finite domains".
class KeyedPermutation {
 public:
  /// Throws std::invalid_argument unless size >= 1.
  KeyedPermutation(const Stream& stream, int64_t size);

  int64_t size() const { return static_cast<int64_t>(size_); }
  /// Throws std::out_of_range unless 0 <= position < size().
  int64_t at(int64_t position) const;

 private:
  uint64_t encrypt(uint64_t point) const;

  philox::StreamKey key_;
  uint64_t size_;
  uint64_t columns_;  ///< a
  uint64_t rows_;     ///< b
};

}  // namespace shoal
