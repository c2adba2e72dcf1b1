#include "runtime/random/random_stream.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

namespace shoal {
namespace {

TEST(Stream, NamesAreHashedByFnv1a) {
  static_assert(hash_name("") == 0xCBF29CE484222325u);
  EXPECT_EQ(hash_name("a"), 0xAF63DC4C8601EC8Cu);
  EXPECT_EQ(hash_name("foobar"), 0x85944171F73967E8u);
}

TEST(Stream, PurposesDoNotShareNumbers) {
  const ScalarDraws order({1, Purpose::kDataOrder, 0, 0});
  const ScalarDraws augment({1, Purpose::kAugment, 0, 0});
  EXPECT_NE(order.uniform(0, 0), augment.uniform(0, 0));
}

TEST(ScalarDraws, DependOnIdAndIndexAlone) {
  const Stream stream{1, Purpose::kAugment, 2, 3};
  const ScalarDraws draws(stream);
  const double first = draws.uniform(7, 0);
  EXPECT_NE(draws.uniform(7, 1), first);
  EXPECT_NE(draws.uniform(8, 0), first);
  EXPECT_EQ(ScalarDraws(stream).uniform(7, 0), first);
}

TEST(ScalarDraws, IntegersCoverTheirRangeEvenly) {
  const ScalarDraws draws({.seed = 5});
  constexpr int kDraws = 90000;
  std::vector<int> counts(9);
  for (int i = 0; i < kDraws; ++i) {
    const int64_t value = draws.integer(static_cast<uint64_t>(i), 0, 9);
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 9);
    ++counts[static_cast<size_t>(value)];
  }
  for (const int count : counts) EXPECT_NEAR(count, kDraws / 9, 5 * std::sqrt(kDraws / 9.0));
  EXPECT_THROW(draws.integer(0, 0, 0), std::invalid_argument);
}

TEST(ScalarDraws, ChanceHasItsProbabilityAndItsLimits) {
  const ScalarDraws draws({.seed = 5});
  int hits = 0;
  for (uint64_t i = 0; i < 100000; ++i) {
    hits += draws.chance(i, 0, 0.3) ? 1 : 0;
    ASSERT_FALSE(draws.chance(i, 0, 0.0));
    ASSERT_TRUE(draws.chance(i, 0, 1.0));
  }
  EXPECT_NEAR(hits, 30000, 5 * std::sqrt(100000 * 0.3 * 0.7));
}

}  // namespace
}  // namespace shoal
