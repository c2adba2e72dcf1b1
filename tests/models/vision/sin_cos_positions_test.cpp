#include "models/backbones/vit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

// Two rows of three patches, width 8: frequencies 1 and 1/100.
TEST(SinCosPositions, AreThoseOfTheFormula) {
  const torch::Tensor positions = sin_cos_positions(2, 3, 8, torch::kFloat64);
  ASSERT_EQ(positions.sizes(), (at::IntArrayRef{6, 8}));
  const torch::Tensor first = torch::tensor({0, 0, 1, 1, 0, 0, 1, 1}, torch::kFloat64);
  EXPECT_TRUE(positions[0].equal(first));
  // Row 1, column 2.
  const torch::Tensor last =
      torch::tensor({std::sin(1.0), std::sin(0.01), std::cos(1.0), std::cos(0.01), std::sin(2.0),
                     std::sin(0.02), std::cos(2.0), std::cos(0.02)},
                    torch::kFloat64);
  EXPECT_LE(testing::apart(positions[5], last), 1e-15);
  EXPECT_THROW(sin_cos_positions(2, 2, 6, torch::kFloat64), c10::Error);
}

}  // namespace
}  // namespace shoal
