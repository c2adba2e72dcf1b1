#include "models/kernels/token_linear.h"

#include <ATen/ops/matmul.h>
#include <gtest/gtest.h>

#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using testing::gradient_error;
using testing::some_numbers;

TEST(TokenLinear, MapsTheTokensOfEveryChannelAlike) {
  const torch::Tensor x = some_numbers({3, 5, 7}, 1), weight = some_numbers({4, 5}, 2),
                      bias = some_numbers({4}, 3);
  const torch::Tensor expected =
      at::matmul(x.transpose(1, 2), weight.t()).transpose(1, 2) + bias.unsqueeze(1);
  EXPECT_LT((token_linear(x, weight, bias) - expected).abs().max().item<double>(), 1e-14);
}

TEST(TokenLinear, GradientsAreThoseOfFiniteDifferences) {
  const torch::Tensor x = some_numbers({2, 5, 3}, 1).requires_grad_(),
                      weight = some_numbers({4, 5}, 2).requires_grad_(),
                      bias = some_numbers({4}, 3).requires_grad_();
  EXPECT_LT(gradient_error([&] { return token_linear(x, weight, bias); }, {x, weight, bias}), 1e-6);
}

TEST(TokenLinear, TakesNoImagesForwardAndBackward) {
  const torch::Tensor x = some_numbers({0, 5, 3}, 1),
                      weight = some_numbers({4, 5}, 2).requires_grad_(),
                      bias = some_numbers({4}, 3).requires_grad_();
  const torch::Tensor y = token_linear(x, weight, bias);
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{0, 4, 3}));
  y.sum().backward();
  EXPECT_EQ(weight.grad().abs().max().item<double>(), 0.0);
  EXPECT_EQ(bias.grad().abs().max().item<double>(), 0.0);
}

TEST(TokenLinear, RefusesAWeightOfAnotherWidth) {
  EXPECT_THROW(
      token_linear(some_numbers({2, 5, 3}, 1), some_numbers({4, 6}, 2), some_numbers({4}, 3)),
      c10::Error);
}

}  // namespace
}  // namespace shoal
