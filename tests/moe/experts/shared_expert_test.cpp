#include "moe/experts/shared_expert.h"

#include <gtest/gtest.h>

#include "tests/support/gradient_check.h"

// T tokens  D width  H hidden width of one expert
namespace shoal {
namespace {

using testing::some_numbers;

constexpr int64_t kTokenWidth = 5, kSharedHidden = 3, kCount = 2;

SharedExpert make(bool bias, bool gated = false) {
  SharedExpert shared({kCount, kSharedHidden, gated, Activation::kGelu, bias}, kTokenWidth,
                      torch::kFloat64);
  const torch::NoGradGuard no_grad;
  int64_t seed = 1;
  for (torch::Tensor& weight : shared.parameters()) {
    weight.copy_(some_numbers(weight.sizes(), seed++));
  }
  return shared;
}

TEST(SharedExpert, IsTheSumOfItsExperts) {
  const SharedExpert shared = make(/*bias=*/true);
  const torch::Tensor x_TD = some_numbers({7, kTokenWidth}, 9);
  const std::vector<torch::Tensor> weights = shared.parameters();
  torch::Tensor expected = weights[3].expand({7, kTokenWidth});  // one output bias for all
  for (int64_t i = 0; i < kCount; ++i) {
    const auto part = [&](const torch::Tensor& tensor, int64_t dim) {
      return tensor.narrow(dim, i * kSharedHidden, kSharedHidden);
    };
    const torch::Tensor hidden =
        torch::gelu(x_TD.matmul(part(weights[0], 1)) + part(weights[1], 0));
    expected = expected + hidden.matmul(part(weights[2], 0));
  }
  EXPECT_TRUE(torch::allclose(shared.forward(x_TD), expected, 1e-13));
}

TEST(SharedExpert, GradientsAreThoseOfFiniteDifferences) {
  for (const int64_t variant : {0, 1, 2, 3}) {
    const bool bias = variant % 2 == 1, gated = variant >= 2;
    const SharedExpert shared = make(bias, gated);
    torch::Tensor x_TD = some_numbers({4, kTokenWidth}, 9).set_requires_grad(true);
    std::vector<torch::Tensor> inputs = shared.parameters();
    EXPECT_EQ(inputs.size(), (gated ? 3u : 2u) * (bias ? 2u : 1u));
    inputs.push_back(x_TD);
    EXPECT_LT(testing::gradient_error([&] { return shared.forward(x_TD); }, inputs), 1e-7);
  }
}

TEST(SharedExpert, MayBeGated) {
  const SharedExpert shared = make(/*bias=*/false, /*gated=*/true);
  const std::vector<torch::Tensor> weights = shared.parameters();  // gate, fc1, fc2
  const torch::Tensor x_TD = some_numbers({7, kTokenWidth}, 9);
  const torch::Tensor expected =
      (torch::gelu(x_TD.matmul(weights[0])) * x_TD.matmul(weights[1])).matmul(weights[2]);
  EXPECT_TRUE(torch::allclose(shared.forward(x_TD), expected, 1e-13));
}

TEST(SharedExpert, EveryRankHoldsItWhole) {
  for (const Parameter& parameter : parameters_of(make(true), "blocks.1.moe.shared")) {
    EXPECT_FALSE(parameter.is_stacked()) << parameter.name;
  }
}

TEST(SharedExpert, TakesNoTokens) {
  EXPECT_EQ(make(true).forward(torch::zeros({0, kTokenWidth}, torch::kFloat64)).size(0), 0);
}

}  // namespace
}  // namespace shoal
