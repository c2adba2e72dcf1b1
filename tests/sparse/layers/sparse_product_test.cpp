#include "sparse/layers/sparse_product.h"

#include <ATen/ops/linear.h>
#include <gtest/gtest.h>

#include <memory>

#include "sparse/permutations/doubly_stochastic.h"
#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using testing::relative_error;
using testing::some_numbers;

constexpr double kError = 1e-13;

/// A layer of 24 outputs and 20 inputs, whose weights are zero outside its mask.
struct SomeLayer {
  torch::Tensor mask = some_numbers({24, 20}, 1) < -0.4;
  torch::Tensor weight = (some_numbers({24, 20}, 2) * mask).requires_grad_();
  torch::Tensor bias = some_numbers({24}, 3).requires_grad_();
  torch::Tensor x = some_numbers({2, 5, 20}, 4);

  double error(const SparseProduct& product, const torch::Tensor& dense) const {
    return relative_error(product.multiply(x, weight, bias), at::linear(x, dense, bias));
  }
};

TEST(SparseProduct, FollowsTheMask) {
  SomeLayer layer;
  SparseProduct product({.break_even = SparseProduct::kAlways});
  product.set_mask(layer.mask);
  EXPECT_TRUE(product.is_on());
  EXPECT_LE(layer.error(product, layer.weight), kError);
  const torch::Tensor other = some_numbers({24, 20}, 5) < 0;
  product.set_mask(other);
  EXPECT_LE(layer.error(product, layer.weight * other), kError);
}

TEST(SparseProduct, IsLeftToADenseOneWhileAsked) {
  const SomeLayer layer;
  SparseProduct product({.break_even = SparseProduct::kAlways});
  product.set_mask(layer.mask);
  product.set_dense(true);
  EXPECT_FALSE(product.is_on());
  product.set_dense(false);
  EXPECT_TRUE(product.is_on());
}

TEST(SparseProduct, TakesTheOrderOfAPermutationOnceThatIsHard) {
  const SomeLayer layer;
  for (const PermutationAxis axis : {PermutationAxis::kInputs, PermutationAxis::kOutputs}) {
    const auto permutation = std::make_shared<Permutation>(
        Permutation::Place{Parameter{"fc.weight", layer.weight, 0, {}, {}}, false, axis});
    permutation->soften(/*groups=*/1, /*mix=*/0.5, /*seed=*/3,
                        std::make_shared<DoublyStochastic>());
    SparseProduct product({.permutation = permutation, .break_even = SparseProduct::kAlways});
    product.set_mask(layer.mask);
    EXPECT_FALSE(product.is_on());
    permutation->harden();
    EXPECT_TRUE(product.is_on());
    EXPECT_LE(layer.error(product, permutation->apply(layer.weight)), kError);
    permutation->shuffle(/*seed=*/7);
    EXPECT_LE(layer.error(product, permutation->apply(layer.weight)), kError);
  }
}

TEST(SparseProduct, IsUsedWhereItIsFaster) {
  const SomeLayer layer;  // of density 0.3
  const auto is_on = [&](const BreakEven& break_even) {
    SparseProduct product({.break_even = break_even});
    product.set_mask(layer.mask);
    return product.is_on();
  };
  EXPECT_TRUE(is_on({.one = 0.5, .few = 0.1, .many = 0.1}));
  EXPECT_TRUE(is_on({.one = 0.1, .few = 0.5, .many = 0.1}));
  EXPECT_TRUE(is_on({.one = 0.1, .few = 0.1, .many = 0.5}));
  EXPECT_FALSE(is_on({.one = 0.1, .few = 0.1, .many = 0.1}));
}

// The gradient of weights that are off tells who computed the product.
TEST(SparseProduct, LeavesNumbersOfTokensToADenseOne) {
  const SomeLayer layer;
  SparseProduct product({.break_even = {.one = 0.9, .few = 0.1, .many = 0.9}});
  product.set_mask(layer.mask);
  for (const int64_t tokens : {1, 10, 70}) {
    const torch::Tensor x = some_numbers({tokens, 20}, 6);
    layer.weight.mutable_grad() = torch::Tensor();
    product.multiply(x, layer.weight, layer.bias).sum().backward();
    EXPECT_EQ((layer.weight.grad() * ~layer.mask).any().item<bool>(), tokens == 10) << tokens;
  }
}

TEST(SparseProduct, ValuesThatItKeepsAreThoseOfTheWeights) {
  SomeLayer layer;
  SparseProduct product({.break_even = SparseProduct::kAlways});
  product.set_mask(layer.mask);
  const torch::NoGradGuard no_grad;
  EXPECT_LE(layer.error(product, layer.weight), kError);
  layer.weight.mul_(2);
  EXPECT_LE(layer.error(product, layer.weight), kError);
  // Written past LibTorch, which then knows of no change.
  layer.weight.data_ptr<double>()[layer.mask.view({-1}).nonzero()[0].item<int64_t>()] += 1;
  EXPECT_GT(layer.error(product, layer.weight), 1e-3);
  product.weights_changed();
  EXPECT_LE(layer.error(product, layer.weight), kError);
}

}  // namespace
}  // namespace shoal
