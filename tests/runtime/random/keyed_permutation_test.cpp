#include "runtime/random/keyed_permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <stdexcept>
#include <vector>

namespace shoal {
namespace {

std::vector<int64_t> whole(const Stream& stream, int64_t size) {
  const KeyedPermutation permutation(stream, size);
  std::vector<int64_t> values;
  for (int64_t i = 0; i < size; ++i) values.push_back(permutation.at(i));
  return values;
}

TEST(KeyedPermutation, VisitsEachValueOnce) {
  for (const int64_t size : {1, 2, 3, 4, 5, 7, 16, 17, 99, 100, 101, 1000, 50000}) {
    std::vector<bool> seen(static_cast<size_t>(size));
    for (const int64_t value : whole({.seed = 3}, size)) {
      ASSERT_GE(value, 0);
      ASSERT_LT(value, size);
      ASSERT_FALSE(seen[static_cast<size_t>(value)]) << size;
      seen[static_cast<size_t>(value)] = true;
    }
  }
}

TEST(KeyedPermutation, ReachesTheEndOfHugeRanges) {
  const int64_t size = (int64_t{1} << 62) + 12345;
  const KeyedPermutation permutation({.seed = 3}, size);
  for (const int64_t position : {int64_t{0}, size / 2, size - 1}) {
    EXPECT_GE(permutation.at(position), 0);
    EXPECT_LT(permutation.at(position), size);
  }
}

TEST(KeyedPermutation, ChangesWithSeedAndEpochAlone) {
  const Stream stream{1, Purpose::kDataOrder, 0, 4};
  EXPECT_EQ(whole(stream, 100), whole(stream, 100));
  EXPECT_NE(whole(stream, 100), whole({1, Purpose::kDataOrder, 0, 5}, 100));
  EXPECT_NE(whole(stream, 100), whole({2, Purpose::kDataOrder, 0, 4}, 100));
}

TEST(KeyedPermutation, EveryOrderOfAFewIsEquallyLikely) {
  for (const int64_t size : {3, 4, 5}) {
    std::map<std::vector<int64_t>, int> counts;
    constexpr int kDraws = 24000;
    for (uint64_t epoch = 0; epoch < kDraws; ++epoch) {
      ++counts[whole({1, Purpose::kDataOrder, 0, epoch}, size)];
    }
    const double orders = std::tgamma(static_cast<double>(size + 1));
    ASSERT_EQ(static_cast<double>(counts.size()), orders);
    double chi_square = 0;
    for (const auto& [order, count] : counts) {
      const double expected = kDraws / orders;
      chi_square += (count - expected) * (count - expected) / expected;
    }
    // Five standard deviations above the mean of the distribution.
    EXPECT_LT(chi_square, orders - 1 + 5 * std::sqrt(2 * (orders - 1))) << size;
  }
}

TEST(KeyedPermutation, NeighboursDoNotStayTogether) {
  const std::vector<int64_t> values = whole({.seed = 9}, 50000);
  double sum = 0;
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    sum +=
        (static_cast<double>(values[i]) - 24999.5) * (static_cast<double>(values[i + 1]) - 24999.5);
  }
  const double variance = 50000.0 * 50000.0 / 12;
  EXPECT_LT(std::abs(sum / 50000 / variance), 5 / std::sqrt(50000.0));
}

TEST(KeyedPermutation, RefusesPositionsAndSizesOutOfRange) {
  const KeyedPermutation permutation({.seed = 1}, 10);
  EXPECT_THROW(permutation.at(-1), std::out_of_range);
  EXPECT_THROW(permutation.at(10), std::out_of_range);
  EXPECT_THROW(KeyedPermutation({.seed = 1}, 0), std::invalid_argument);
}

}  // namespace
}  // namespace shoal
