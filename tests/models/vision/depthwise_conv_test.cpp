#include "models/vision/convnext_block.h"

#include <gtest/gtest.h>

#include "tests/support/gradient_check.h"
#include "tests/support/model_fill.h"

// B images  H height  W width  C channels
namespace shoal {
namespace {

using testing::some_numbers;

DepthwiseConv conv(int64_t channels, torch::Dtype dtype = torch::kFloat64) {
  DepthwiseConv result(channels, torch::TensorOptions().dtype(dtype));
  testing::fill_parameters(*result);
  return result;
}

/// One output after another; what lies outside the image is zero.
torch::Tensor plain_conv(const DepthwiseConv& layer, const torch::Tensor& x_BHWC) {
  const int64_t H = x_BHWC.size(1), W = x_BHWC.size(2);
  torch::Tensor y = torch::zeros_like(x_BHWC);
  for (int64_t row = 0; row < H; ++row) {
    for (int64_t column = 0; column < W; ++column) {
      torch::Tensor sum_BC = layer->bias.expand({x_BHWC.size(0), x_BHWC.size(3)}).clone();
      for (int64_t i = 0; i < 7; ++i) {
        for (int64_t j = 0; j < 7; ++j) {
          const int64_t from_row = row + i - 3, from_column = column + j - 3;
          if (from_row < 0 || from_row >= H || from_column < 0 || from_column >= W) continue;
          const torch::Tensor weight_C = layer->weight.select(3, j).select(2, i).squeeze(1);
          sum_BC += x_BHWC.select(1, from_row).select(1, from_column) * weight_C;
        }
      }
      y.select(1, row).select(1, column).copy_(sum_BC);
    }
  }
  return y;
}

TEST(DepthwiseConv, SumsSevenBySevenNeighboursOfEachChannel) {
  const torch::NoGradGuard no_grad;
  for (const auto& [height, width, channels] :
       {std::tuple{9, 8, 3}, std::tuple{2, 5, 16}, std::tuple{1, 1, 4}, std::tuple{3, 3, 1}}) {
    const torch::Tensor x = some_numbers({2, height, width, channels}, 1);
    const DepthwiseConv layer = conv(channels);
    const torch::Tensor y = layer->forward(x);
    EXPECT_TRUE(y.is_contiguous());
    EXPECT_LT((y - plain_conv(layer, x)).abs().max().item<double>(), 1e-13);
    const DepthwiseConv fast = conv(channels, torch::kFloat32);
    EXPECT_LT((fast->forward(x.to(torch::kFloat32)) - y).abs().max().item<double>(), 1e-5);
  }
}

TEST(DepthwiseConv, StartsFromSmallNormalWeights) {
  const std::vector<Parameter> parameters = parameters_of(*conv(2));
  ASSERT_EQ(parameters.size(), 2u);
  EXPECT_EQ(parameters[0].init.kind, Init::Kind::kNormal);
  EXPECT_EQ(parameters[0].init.scale, 0.02);
  EXPECT_EQ(parameters[1].init.kind, Init::Kind::kConstant);
  EXPECT_EQ(parameters[1].init.scale, 0.0);
}

TEST(DepthwiseConv, GradientsAreThoseOfFiniteDifferences) {
  const DepthwiseConv layer = conv(2);
  const torch::Tensor x = some_numbers({2, 3, 4, 2}, 1).requires_grad_();
  EXPECT_LT(
      testing::gradient_error([&] { return layer->forward(x); }, {x, layer->weight, layer->bias}),
      1e-6);
}

TEST(DepthwiseConv, TakesNoImagesForwardAndBackward) {
  for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64}) {
    const DepthwiseConv layer = conv(8, dtype);
    const torch::Tensor x = some_numbers({0, 4, 4, 8}, 1, dtype).requires_grad_();
    const torch::Tensor y = layer->forward(x);
    EXPECT_EQ(y.sizes(), x.sizes());
    y.sum().backward();
    EXPECT_EQ(x.grad().sizes(), x.sizes());
    EXPECT_EQ(layer->weight.grad().abs().max().item<double>(), 0.0);
    EXPECT_EQ(layer->bias.grad().abs().max().item<double>(), 0.0);
  }
}

}  // namespace
}  // namespace shoal
