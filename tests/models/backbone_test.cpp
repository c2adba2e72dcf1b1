#include "models/backbone.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/gradient_check.h"

// b samples  S tokens  D features
namespace shoal {
namespace {

using testing::gradient_error;
using testing::some_numbers;

torch::Tensor pooled(const torch::Tensor& x_bSD, Features features,
                     const torch::Tensor& length_b = {}) {
  ModelOutput output;
  output.set_tokens(x_bSD, features, length_b);
  return output.pooled_bD;
}

const torch::Tensor kLengths = torch::tensor({3, 1, 5}, torch::kInt64);

TEST(ModelOutput, PoolsTheTokensOfASamplesLength) {
  const torch::Tensor x = some_numbers({3, 5, 4}, 1);
  for (int64_t b = 0; b < 3; ++b) {
    const int64_t length = kLengths[b].item<int64_t>();
    const torch::Tensor mean = x[b].narrow(0, 0, length).mean(0);
    EXPECT_LT((pooled(x, Features::kPooled, kLengths)[b] - mean).abs().max().item<double>(), 1e-15);
    EXPECT_TRUE(pooled(x, Features::kLast, kLengths)[b].equal(x[b][length - 1]));
  }
  EXPECT_TRUE(pooled(x, Features::kPooled).equal(x.mean(1)));
  EXPECT_TRUE(pooled(x, Features::kLast).equal(x.select(1, 4)));
}

TEST(ModelOutput, PaddingReachesNeitherValuesNorGradients) {
  torch::Tensor x = some_numbers({3, 5, 4}, 1).set_requires_grad(true);
  torch::Tensor other = x.detach().clone();
  other[0].narrow(0, 3, 2).fill_(std::numeric_limits<double>::quiet_NaN());
  other[1].narrow(0, 1, 4).fill_(std::numeric_limits<double>::infinity());
  for (const Features features : {Features::kPooled, Features::kLast}) {
    const auto y = [&](const torch::Tensor& tokens) { return pooled(tokens, features, kLengths); };
    EXPECT_TRUE(y(x).equal(y(other)));
    EXPECT_LT(gradient_error([&] { return y(x).square().sum(); }, {x}), 1e-6);
    x.mutable_grad() = torch::Tensor();
    y(x).sum().backward();
    EXPECT_EQ(x.grad()[1].narrow(0, 1, 4).abs().max().item<double>(), 0.0);
  }
}

TEST(ModelOutput, PoolsBfloat16InFloat32AndNoSamples) {
  const torch::Tensor x = some_numbers({3, 5, 4}, 1);
  for (const Features features : {Features::kPooled, Features::kLast}) {
    const torch::Tensor y = pooled(x.to(torch::kBFloat16), features, kLengths);
    EXPECT_EQ(y.scalar_type(), torch::kFloat32);
    const torch::Tensor wide =
        pooled(x.to(torch::kBFloat16).to(torch::kFloat32), features, kLengths);
    EXPECT_TRUE(y.equal(wide));
    EXPECT_EQ(pooled(x.narrow(0, 0, 0), features, kLengths.narrow(0, 0, 0)).sizes(),
              (at::IntArrayRef{0, 4}));
  }
}

}  // namespace
}  // namespace shoal
