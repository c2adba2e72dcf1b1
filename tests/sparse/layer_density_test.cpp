#include "sparse/layer_density.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/sparse/patterns/pattern_fixture.h"

namespace shoal {
namespace {

// The first matrix would need more than all of its weights: dense, and epsilon is 2.5.
TEST(ErkDensities, MakesSmallMatricesDense) {
  const std::vector<double> densities = erk_densities({{4, 4}, {8, 8}, {16, 16}}, 0.4);
  ASSERT_EQ(densities.size(), 3u);
  EXPECT_DOUBLE_EQ(densities[0], 1.0);
  EXPECT_DOUBLE_EQ(densities[1], 0.625);
  EXPECT_DOUBLE_EQ(densities[2], 0.3125);
  const auto weights = [&](int64_t side, size_t layer) {
    return testing::make_pattern("{name: unstructured}", side, side, densities[layer])
        ->num_weights();
  };
  EXPECT_EQ(weights(4, 0), 16);
  EXPECT_EQ(weights(8, 1), 40);
  EXPECT_EQ(weights(16, 2), 80);
}

TEST(ErkDensities, CountsCopies) {
  const std::vector<double> densities = erk_densities({{4, 8}, {8, 16, 3}}, 0.25);
  EXPECT_NEAR(densities[0] * 32 + densities[1] * 3 * 128, 0.25 * (32 + 3 * 128), 1e-9);
  EXPECT_NEAR(densities[0] / densities[1], (12.0 / 32) / (24.0 / 128), 1e-12);
}

TEST(ErkDensities, AreAllOneWhereNothingIsToBeOff) {
  EXPECT_EQ(erk_densities({{3, 7}, {5, 9}, {7, 11, 3}}, 1.0), (std::vector<double>{1.0, 1.0, 1.0}));
}

TEST(ErkDensities, RefusesNoLayersAtAll) { EXPECT_THROW(erk_densities({}, 0.5), ConfigError); }

}  // namespace
}  // namespace shoal
