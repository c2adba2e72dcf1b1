#include "models/attention_experts/stacked_linear.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "tests/support/gradient_check.h"

// D inputs  O outputs  R rows of all units  u units
namespace shoal {
namespace {

using testing::some_numbers;

TEST(StackedLinear, IsEachUnitsLinearLayerForwardAndBackward) {
  const std::vector<int64_t> rows_u{2, 0, 5};
  const torch::Tensor x_RD = some_numbers({7, 3}, 1).requires_grad_();
  const torch::Tensor weight_uDO = some_numbers({3, 3, 4}, 2).requires_grad_();
  const torch::Tensor bias_uO = some_numbers({3, 4}, 3).requires_grad_();
  std::vector<torch::Tensor> each;
  int64_t first = 0;
  for (int64_t u = 0; u < 3; ++u) {
    const int64_t rows = rows_u[static_cast<size_t>(u)];
    each.push_back(x_RD.narrow(0, first, rows).matmul(weight_uDO[u]) + bias_uO[u]);
    first += rows;
  }
  const auto gradients = [&](const torch::Tensor& y_RO) {
    return torch::autograd::grad({y_RO.pow(3).sum()}, {x_RD, weight_uDO, bias_uO});
  };
  const torch::Tensor expected = torch::cat(each);
  const torch::Tensor found = stacked_linear(x_RD, rows_u, weight_uDO, bias_uO);
  EXPECT_TRUE(torch::allclose(found, expected, 1e-14, 1e-14));
  const auto wanted = gradients(expected), got = gradients(found);
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(torch::allclose(got[i], wanted[i], 1e-12, 1e-12)) << "input " << i;
  }
  // Of some inputs alone, and without rows.
  const torch::Tensor of_weight = torch::autograd::grad(
      {stacked_linear(x_RD.detach(), rows_u, weight_uDO, bias_uO.detach()).pow(3).sum()},
      {weight_uDO})[0];
  EXPECT_TRUE(of_weight.equal(got[1]));
  const torch::Tensor none = stacked_linear(x_RD.narrow(0, 0, 0), {0, 0, 0}, weight_uDO, bias_uO);
  EXPECT_EQ(none.sizes(), at::IntArrayRef({0, 4}));
  EXPECT_EQ(gradients(none)[1].abs().max().item<double>(), 0);
  EXPECT_THROW(stacked_linear(x_RD, {2, 0, 4}, weight_uDO, bias_uO), c10::Error);
}

}  // namespace
}  // namespace shoal
