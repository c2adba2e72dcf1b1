#include "runtime/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/gradient_check.h"

namespace shoal::vector_math {
namespace {

using testing::worst_of;

TEST(VectorMath, ExpIsWithinTwoRoundingsOverItsRange) {
  constexpr int kSteps = 2'000'000;
  double worst = 0.0;
  for (int i = 0; i <= kSteps; ++i) {
    const float x = -87.0f + 175.3f * static_cast<float>(i) / kSteps;
    const double exact = std::exp(static_cast<double>(x));
    worst = worst_of(worst, std::abs(static_cast<double>(exp_of(x)) - exact) / exact);
  }
  EXPECT_LE(worst, 2.0 * std::numeric_limits<float>::epsilon() / 2);
}

TEST(VectorMath, ExpStopsAtTheEndsOfItsRange) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_of(0.0f), 1.0f);
  EXPECT_EQ(exp_of(-0.0f), 1.0f);
  EXPECT_EQ(exp_of(-kInf), exp_of(-87.0f));
  EXPECT_EQ(exp_of(-1e30f), exp_of(-87.0f));
  EXPECT_EQ(exp_of(kInf), exp_of(88.3f));
  EXPECT_GT(exp_of(-87.0f), 0.0f);
  EXPECT_TRUE(std::isfinite(exp_of(88.3f)));
  EXPECT_TRUE(std::isfinite(exp_of(std::nanf(""))));
}

TEST(VectorMath, BySignLooksAtTheSignBit) {
  EXPECT_EQ(by_sign(-2.0f, 3.0f, 4.0f), 3.0f);
  EXPECT_EQ(by_sign(-0.0f, 3.0f, 4.0f), 3.0f);
  EXPECT_EQ(by_sign(0.0f, 3.0f, 4.0f), 4.0f);
  EXPECT_EQ(by_sign(5.0f, -3.0f, -4.0f), -4.0f);
}

}  // namespace
}  // namespace shoal::vector_math
