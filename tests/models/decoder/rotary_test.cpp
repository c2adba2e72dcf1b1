#include "models/decoder/rotary.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/gradient_check.h"

// B sequences  N heads  S tokens  H head width
namespace shoal {
namespace {

using testing::some_numbers;

constexpr double kBase = 100.0;

TEST(Rotary, TurnsPairsOfHalvesByTheirPositionsAngles) {
  const torch::Tensor x = some_numbers({2, 3, 5, 6}, 1);
  const torch::Tensor y = rotate(x, rotation_at(torch::arange(5) + 2, 6, kBase, torch::kFloat64));
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t n = 0; n < 3; ++n) {
      for (int64_t s = 0; s < 5; ++s) {
        for (int64_t i = 0; i < 3; ++i) {
          const double angle =
              static_cast<double>(s + 2) * std::pow(kBase, -2.0 * static_cast<double>(i) / 6.0);
          const double u = x[b][n][s][i].item<double>(), v = x[b][n][s][i + 3].item<double>();
          EXPECT_NEAR(y[b][n][s][i].item<double>(), u * std::cos(angle) - v * std::sin(angle),
                      1e-14);
          EXPECT_NEAR(y[b][n][s][i + 3].item<double>(), v * std::cos(angle) + u * std::sin(angle),
                      1e-14);
        }
      }
    }
  }
}

TEST(Rotary, ProductsDependOnDistancesAlone) {
  const torch::Tensor q = some_numbers({1, 1, 4, 8}, 1), k = some_numbers({1, 1, 4, 8}, 2);
  const auto products = [&](int64_t offset) {
    const Rotation turns = rotation_at(torch::arange(4) + offset, 8, kBase, torch::kFloat64);
    return rotate(q, turns).matmul(rotate(k, turns).transpose(2, 3));
  };
  EXPECT_LT((products(0) - products(77)).abs().max().item<double>(), 1e-13);
}

TEST(Rotary, SequencesMayBeginAtPositionsOfTheirOwn) {
  const torch::Tensor x = some_numbers({2, 3, 4, 6}, 1);
  const torch::Tensor begin = torch::tensor({int64_t{3}, int64_t{9}}).view({2, 1, 1});
  const torch::Tensor y =
      rotate(x, rotation_at(begin + torch::arange(4), 6, kBase, torch::kFloat64));
  for (int64_t b = 0; b < 2; ++b) {
    const Rotation own = rotation_at(begin[b][0] + torch::arange(4), 6, kBase, torch::kFloat64);
    EXPECT_TRUE(y.narrow(0, b, 1).equal(rotate(x.narrow(0, b, 1), own)));
  }
}

TEST(Rotary, GradientIsThatOfFiniteDifferences) {
  const torch::Tensor x = some_numbers({2, 3, 4, 6}, 1).requires_grad_();
  const Rotation turns = rotation_at(torch::arange(4), 6, kBase, torch::kFloat64);
  EXPECT_LT(testing::gradient_error([&] { return rotate(x, turns); }, {x}), 1e-6);
}

TEST(Rotary, AnglesOfFewerBitsAreFloat32) {
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    EXPECT_EQ(rotation_at(torch::arange(4), 6, kBase, dtype).cos.scalar_type(), torch::kFloat32);
  }
  const torch::Tensor x = some_numbers({2, 3, 4, 6}, 1).to(torch::kBFloat16);
  const Rotation turns = rotation_at(torch::arange(4), 6, kBase, torch::kBFloat16);
  EXPECT_TRUE(rotate(x, turns).equal(rotate(x.to(torch::kFloat32), turns).to(torch::kBFloat16)));
}

TEST(Rotary, RefusesWhatDoesNotFit) {
  EXPECT_THROW(rotation_at(torch::arange(4), 5, kBase, torch::kFloat64), c10::Error);
  const Rotation turns = rotation_at(torch::arange(4), 6, kBase, torch::kFloat64);
  EXPECT_THROW(rotate(some_numbers({2, 3, 5, 6}, 1), turns), c10::Error);
}

}  // namespace
}  // namespace shoal
