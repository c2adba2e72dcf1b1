#include "sparse/layers/sparse_product.h"

#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <vector>

#include "tests/support/gradient_check.h"
#include "tests/support/on_gpu.h"

namespace shoal {
namespace {

using testing::some_numbers;

class SparseProductGpu : public testing::OnGpu {
 protected:
  /// A layer of 24 outputs and 20 inputs.
  torch::Tensor mask_ = on_gpu(some_numbers({24, 20}, 1) < -0.4);
  torch::Tensor weight_ = on_gpu(some_numbers({24, 20}, 2)).mul_(mask_).requires_grad_();
  torch::Tensor bias_ = on_gpu(some_numbers({24}, 3)).requires_grad_();
  torch::Tensor x_ = on_gpu(some_numbers({2, 5, 20}, 4)).requires_grad_();

  /// Compares the output, and the gradients of x, the weights that are on, and the bias.
  void expect_dense(const SparseProduct& product, const torch::Tensor& dense,
                    const torch::Tensor& mask) const {
    const torch::Tensor y = product.multiply(x_, weight_, bias_),
                        expected_y = at::linear(x_, dense, bias_);
    expect_close(expected_y.cpu(), y, 64);
    const torch::Tensor y_grad = on_gpu(some_numbers(y.sizes(), 5));
    const std::vector<torch::Tensor> found =
        torch::autograd::grad({y}, {x_, weight_, bias_}, {y_grad});
    const std::vector<torch::Tensor> expected =
        torch::autograd::grad({expected_y}, {x_, weight_, bias_}, {y_grad});
    expect_close(expected[0].cpu(), found[0], 64);
    expect_close((expected[1] * mask).cpu(), found[1], 64);
    expect_close(expected[2].cpu(), found[2], 64);
  }
};

TEST_F(SparseProductGpu, FollowsTheMask) {
  SparseProduct product({.break_even = SparseProduct::kAlways});
  product.set_mask(mask_);
  EXPECT_TRUE(product.is_on());
  expect_dense(product, weight_, mask_);
  const torch::Tensor other = on_gpu(some_numbers({24, 20}, 5) < 0);
  product.set_mask(other);
  expect_dense(product, weight_ * other, other);
}

TEST_F(SparseProductGpu, TakesTheOrderOfAPermutation) {
  for (const PermutationAxis axis : {PermutationAxis::kInputs, PermutationAxis::kOutputs}) {
    const auto permutation = std::make_shared<Permutation>(
        Permutation::Place{Parameter{"fc.weight", weight_, 0, {}, {}}, false, axis});
    SparseProduct product({.permutation = permutation, .break_even = SparseProduct::kAlways});
    product.set_mask(mask_);
    for (const uint64_t seed : {3, 7}) {
      permutation->shuffle(seed);
      expect_dense(product, permutation->apply(weight_), mask_);
    }
  }
}

TEST_F(SparseProductGpu, ValuesThatItKeepsAreThoseOfTheWeights) {
  SparseProduct product({.break_even = SparseProduct::kAlways});
  product.set_mask(mask_);
  const torch::NoGradGuard no_grad;
  const auto expect_own = [&] {
    expect_close(at::linear(x_, weight_, bias_).cpu(), product.multiply(x_, weight_, bias_), 64);
  };
  expect_own();
  weight_.mul_(2);
  expect_own();
}

}  // namespace
}  // namespace shoal
