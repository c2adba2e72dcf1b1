#include "runtime/kernels/vector_math.h"

#include <c10/util/BFloat16.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

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

TEST(VectorMath, Bfloat16RoundsAsTorchDoes) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> values{0.0f, -0.0f, 1.0f, kInf, -kInf, 3.4e38f, -3.4e38f, 1e-40f, -1e-45f};
  for (int i = -2000; i <= 2000; ++i) {  // ties among them: 2^-8 is half a step at 1
    values.push_back(1.0f + static_cast<float>(i) / 1024.0f);
    values.push_back(static_cast<float>(i) * 1.7e-7f);
  }
  for (const float value : values) {
    Bfloat16 rounded{};
    put(rounded, value);
    EXPECT_EQ(rounded.bits, c10::BFloat16(value).x) << value;
    EXPECT_EQ(real_of(rounded), static_cast<float>(c10::BFloat16(value))) << value;
  }
  Bfloat16 nothing{};
  put(nothing, std::nanf(""));
  EXPECT_TRUE(std::isnan(real_of(nothing)));
}

}  // namespace
}  // namespace shoal::vector_math
