#include "runtime/random/keyed_permutation.h"

#include <cmath>
#include <stdexcept>
#include <string>

namespace shoal {
namespace {

// Four rounds of a Feistel network hide its structure from an adversary where the halves are
// large; small data sets have halves of a few values and need more.
constexpr uint32_t kRounds = 12;

uint64_t ceil_of_root(uint64_t size) {
  auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(size)));
  while (root * root < size) ++root;
  while (root > 1 && (root - 1) * (root - 1) >= size) --root;
  return root;
}

}  // namespace

KeyedPermutation::KeyedPermutation(const Stream& stream, int64_t size) : key_(stream.key()) {
  if (size < 1) {
    throw std::invalid_argument("KeyedPermutation: size must be positive, got " +
                                std::to_string(size));
  }
  size_ = static_cast<uint64_t>(size);
  columns_ = ceil_of_root(size_);
  rows_ = (size_ + columns_ - 1) / columns_;
}

int64_t KeyedPermutation::at(int64_t position) const {
  if (position < 0 || position >= size()) {
    throw std::out_of_range("KeyedPermutation: position " + std::to_string(position) +
                            " is not in [0, " + std::to_string(size()) + ")");
  }
  uint64_t point = encrypt(static_cast<uint64_t>(position));
  while (point >= size_) point = encrypt(point);
  return static_cast<int64_t>(point);
}

uint64_t KeyedPermutation::encrypt(uint64_t point) const {
  uint64_t column = point % columns_;
  uint64_t row = point / columns_;
  for (uint32_t round = 0; round < kRounds; round += 2) {
    column = (column + philox::scale_to(philox::words_at(key_, row, round), columns_)) % columns_;
    row = (row + philox::scale_to(philox::words_at(key_, column, round + 1), rows_)) % rows_;
  }
  return row * columns_ + column;
}

}  // namespace shoal
