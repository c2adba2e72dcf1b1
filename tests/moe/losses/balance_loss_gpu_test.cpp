#include "moe/losses/balance_loss.h"

#include "tests/support/gradient_check.h"
#include "tests/support/on_gpu.h"

// S scope instances  U units
namespace shoal {
namespace {

using testing::some_numbers;

class BalanceLossGpu : public testing::OnGpu {};

TEST_F(BalanceLossGpu, SquaredVariationEqualsTheCpu) {
  for (const at::ScalarType type : {torch::kFloat32, torch::kFloat64}) {
    for (const int64_t num_units : {1, 3, 64}) {
      torch::Tensor value_SU = some_numbers({5, num_units}, 1).abs().to(type);
      value_SU[1] = 0;     // all of them underflow
      value_SU[2][0] = 0;  // one of them
      const torch::Tensor leaf = value_SU.set_requires_grad(true), other = on_gpu(leaf);
      const torch::Tensor expected = squared_variation(leaf), found = squared_variation(other);
      expect_close(expected, found, 64);
      const torch::Tensor upstream_S = some_numbers({5}, 2).to(type);
      expected.backward(upstream_S);
      found.backward(on_gpu(upstream_S));
      expect_close(leaf.grad(), other.grad(), 64);
    }
  }
}

// A gradient as large as no weight makes it, over a mean as small as can be.
TEST_F(BalanceLossGpu, RowsThatUnderflowHaveNoGradient) {
  const torch::Tensor value = on_gpu(torch::zeros({2, 4}, torch::kFloat32)).set_requires_grad(true);
  squared_variation(value).backward(torch::full({2}, 1e6f, value.options()));
  expect_same(torch::zeros({2, 4}), value.grad());
}

}  // namespace
}  // namespace shoal
