#include "models/hspmn/kernels/causal_conv.h"

#include <gtest/gtest.h>

#include "tests/support/gradient_check.h"

// B sequences  S tokens  C channels
namespace shoal {
namespace {

using testing::gradient_error;
using testing::relative_error;
using testing::some_numbers;

/// The equation as it stands.
torch::Tensor plain(const torch::Tensor& x, const torch::Tensor& weight) {
  torch::Tensor y = torch::zeros_like(x);
  for (int64_t t = 0; t < x.size(1); ++t) {
    for (int64_t d = 0; d <= 2 && d <= t; ++d) {
      y.select(1, t) += weight[2 - d] * x.select(1, t - d);
    }
  }
  return y;
}

// A convolution padded on both sides would give 3, 4.5, 6, 7.5, -3.
TEST(CausalConv, ReadsTheTokenAndTheTwoBeforeIt) {
  const torch::Tensor x = torch::tensor({1.0, 2.0, 3.0, 4.0, 5.0}, torch::kFloat64).view({1, 5, 1});
  const torch::Tensor weight = torch::tensor({0.5, -1.0, 2.0}, torch::kFloat64).view({3, 1});
  const torch::Tensor expected =
      torch::tensor({2.0, 3.0, 4.5, 6.0, 7.5}, torch::kFloat64).view({1, 5, 1});
  EXPECT_TRUE(causal_conv(x, weight).equal(expected));
}

TEST(CausalConv, NoTokenSeesALaterOne) {
  const torch::Tensor x = some_numbers({2, 70, 5}, 1), weight = some_numbers({3, 5}, 2);
  const torch::Tensor before = causal_conv(x, weight);
  torch::Tensor other = x.clone();
  other.select(1, 66) += 1;
  const torch::Tensor after = causal_conv(other, weight);
  EXPECT_TRUE(after.narrow(1, 0, 66).equal(before.narrow(1, 0, 66)));
  EXPECT_FALSE(after.select(1, 68).equal(before.select(1, 68)));
}

TEST(CausalConv, EqualsTheEquationForEveryLength) {
  const torch::Tensor weight = some_numbers({3, 19}, 3);
  for (const int64_t S : {0, 1, 2, 3, 64, 65, 130}) {
    for (const int64_t B : {0, 1, 3}) {
      const torch::Tensor x = some_numbers({B, S, 19}, S);
      const torch::Tensor expected = plain(x, weight);
      EXPECT_TRUE(torch::allclose(causal_conv(x, weight), expected, 0, 1e-14)) << B << " x " << S;
      const torch::Tensor narrow = causal_conv(x.to(torch::kFloat32), weight);
      EXPECT_EQ(narrow.scalar_type(), torch::kFloat32);
      EXPECT_TRUE(torch::allclose(narrow.to(torch::kFloat64), expected, 0, 1e-6));
    }
  }
}

TEST(CausalConv, RoundsBfloat16AtItsEdges) {
  const torch::Tensor x = some_numbers({2, 9, 6}, 1).to(torch::kBFloat16);
  const torch::Tensor weight = some_numbers({3, 6}, 2, torch::kFloat32);
  const torch::Tensor y = causal_conv(x, weight);
  EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(y.equal(causal_conv(x.to(torch::kFloat32), weight).to(torch::kBFloat16)));
}

TEST(CausalConv, GoesOnBehindTheTokensBefore) {
  const torch::Tensor x = some_numbers({2, 7, 4}, 1), weight = some_numbers({3, 4}, 2);
  const torch::Tensor whole = causal_conv(x, weight);
  for (const int64_t cut : {2, 3, 6}) {
    const torch::Tensor rest =
        causal_conv(x.narrow(1, cut, 7 - cut).contiguous(), weight, x.narrow(1, cut - 2, 2));
    EXPECT_LT(relative_error(rest, whole.narrow(1, cut, 7 - cut)), 1e-15);
  }
  EXPECT_TRUE(causal_conv(x, weight, torch::zeros({2, 2, 4}, x.options())).equal(whole));
}

TEST(CausalConv, GradientsAreThoseOfFiniteDifferences) {
  for (const int64_t S : {1, 2, 67}) {
    const torch::Tensor x = some_numbers({2, S, 3}, 1).requires_grad_();
    const torch::Tensor weight = some_numbers({3, 3}, 2).requires_grad_();
    EXPECT_LT(gradient_error([&] { return causal_conv(x, weight); }, {x, weight}), 1e-7) << S;
  }
}

}  // namespace
}  // namespace shoal
