#include "models/decoder/dropout_attention.h"

#include <ATen/ops/matmul.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "tests/support/gradient_check.h"
#include "tests/support/some_batch.h"

// B sequences  S tokens  N heads  H head width
namespace shoal {
namespace {

using testing::some_numbers;
using testing::some_step;
using torch::autograd::variable_list;

constexpr double kScale = 0.3;

torch::Tensor plain_attention(const variable_list& heads, const Dropout& dropout,
                              const StepContext& step) {
  const int64_t S = heads[0].size(2);
  const torch::Tensor is_later = torch::ones({S, S}, torch::kBool).triu(1);
  const torch::Tensor share = (kScale * at::matmul(heads[0], heads[1].transpose(2, 3)))
                                  .masked_fill(is_later, -std::numeric_limits<double>::infinity())
                                  .softmax(3);
  return at::matmul(dropout.forward(share, step), heads[2]);
}

TEST(DropoutAttention, PartsAreThoseOfTheWhole) {
  const Dropout dropout(0.25, "blocks.0.attention.probabilities.dropout");
  for (const auto& [B, S] : {std::pair<int64_t, int64_t>{3, 5}, {10, 512}, {0, 4}}) {
    const StepContext step = some_step(B, true);
    variable_list heads;
    for (const uint64_t seed : {1, 2, 3}) {
      heads.push_back(some_numbers({B, 2, S, 4}, seed).requires_grad_());
    }
    const torch::Tensor y =
        attend_with_dropout(heads[0], heads[1], heads[2], {kScale, dropout, step});
    const torch::Tensor expected = plain_attention(heads, dropout, step);
    ASSERT_EQ(y.sizes(), expected.sizes());
    EXPECT_TRUE(at::allclose(y, expected, 1e-12, 1e-12));
    const torch::Tensor grad = some_numbers(y.sizes(), 4);
    const variable_list grads = torch::autograd::grad({y}, heads, {grad});
    const variable_list expected_grads = torch::autograd::grad({expected}, heads, {grad});
    for (size_t i = 0; i < heads.size(); ++i) {
      EXPECT_TRUE(at::allclose(grads[i], expected_grads[i], 1e-10, 1e-12)) << i;
    }
  }
}

TEST(DropoutAttention, OtherTypesAreWithinTheirRoundingOfFloat64) {
  const Dropout dropout(0.25, "blocks.0.attention.probabilities.dropout");
  const StepContext step = some_step(3, true);
  // Sums of eight tokens; bfloat16 also rounds the logits, which are about 1.
  for (const auto& [dtype, tolerance] :
       {std::pair{torch::kFloat32, 1e-5}, {torch::kBFloat16, 3e-2}}) {
    variable_list heads, exact;
    for (const uint64_t seed : {1, 2, 3}) {
      heads.push_back(some_numbers({3, 2, 8, 4}, seed).to(dtype).requires_grad_());
      exact.push_back(heads.back().detach().to(torch::kFloat64).requires_grad_());
    }
    const torch::Tensor y =
        attend_with_dropout(heads[0], heads[1], heads[2], {kScale, dropout, step});
    const torch::Tensor expected = plain_attention(exact, dropout, step);
    EXPECT_EQ(y.scalar_type(), dtype);
    EXPECT_TRUE(at::allclose(y.to(torch::kFloat64), expected, tolerance, tolerance)) << dtype;
    const torch::Tensor grad = some_numbers(y.sizes(), 4).to(dtype);
    const variable_list grads = torch::autograd::grad({y}, heads, {grad});
    const variable_list expected_grads =
        torch::autograd::grad({expected}, exact, {grad.to(torch::kFloat64)});
    for (size_t i = 0; i < heads.size(); ++i) {
      EXPECT_TRUE(
          at::allclose(grads[i].to(torch::kFloat64), expected_grads[i], tolerance, tolerance))
          << dtype << " " << i;
    }
  }
}

}  // namespace
}  // namespace shoal
