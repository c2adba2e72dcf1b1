#include "runtime/base/exact_share.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

namespace shoal {
namespace {

constexpr int64_t kSaturated = int64_t{1} << 62;

TEST(Decimal, ReadsWhatTheRecipeShows) {
  const Decimal factor = decimal_of(1.05);
  EXPECT_EQ(factor.digits, 105);
  EXPECT_EQ(factor.exponent, -2);
  EXPECT_EQ(decimal_of(0.0).digits, 0);
  const Decimal large = decimal_of(4e20);
  EXPECT_EQ(large.digits, 4);
  EXPECT_EQ(large.exponent, 20);
}

TEST(Decimal, SharesAreExactWhereDoublesAreNot) {
  EXPECT_LT(static_cast<int64_t>(0.29 * 100), 29);  // what doubles make of it
  EXPECT_EQ(floor_share(100, decimal_of(0.29)), 29);
  EXPECT_EQ(floor_share(10, decimal_of(0.7)), 7);
  EXPECT_EQ(floor_share(99, decimal_of(0.1)), 9);
  EXPECT_EQ(ceil_share(100, decimal_of(1.1), 1), 110);  // 1.1 * 100 is 110.00000000000001
  EXPECT_EQ(ceil_share(20, decimal_of(1.05), 3), 7);
  EXPECT_EQ(ceil_share(392, decimal_of(1.05), 32), 13);
}

TEST(Decimal, SaturatesAndVanishes) {
  EXPECT_EQ(ceil_share(1000, decimal_of(1e300), 7), kSaturated);
  EXPECT_EQ(ceil_share(1000, decimal_of(1e-300), 7), 1);
  EXPECT_EQ(floor_share(kSaturated, decimal_of(1e-300)), 0);
  EXPECT_EQ(ceil_share(0, decimal_of(1e300), 7), 0);
  EXPECT_EQ(ceil_share(int64_t{1} << 61, decimal_of(0.5), 1), int64_t{1} << 60);
}

TEST(ExactShare, QuotientsAreExactWithoutDivision) {
  for (const __int128 divisor : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{320'000},
                                 int64_t{1'000'000'000'000'000'003}, kSaturated + 1}) {
    for (const int64_t quotient : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{1000},
                                   (int64_t{1} << 31) - 1, kSaturated - 1}) {
      EXPECT_EQ(exact_quotient({quotient * divisor, divisor}), quotient);
      EXPECT_EQ(exact_quotient({quotient * divisor + divisor - 1, divisor}), quotient);
    }
    EXPECT_EQ(exact_quotient({kSaturated * divisor, divisor}), kSaturated);
    EXPECT_EQ(exact_quotient({kSaturated * divisor + divisor, divisor}), kSaturated);
  }
}

TEST(Decimal, RefusesWhatIsNoShare) {
  EXPECT_THROW(decimal_of(-0.5), c10::Error);
  EXPECT_THROW(decimal_of(1.0 / 0.0), c10::Error);
  EXPECT_THROW(ceil_share(-1, decimal_of(1.0), 1), c10::Error);
}

}  // namespace
}  // namespace shoal
