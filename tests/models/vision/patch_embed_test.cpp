#include "models/vision/patch_embed.h"

#include <ATen/ops/conv2d.h>
#include <gtest/gtest.h>

#include "tests/support/gradient_check.h"
#include "tests/support/model_fill.h"

namespace shoal {
namespace {

using testing::fill_parameters;
using testing::gradient_error;
using testing::some_numbers;

TEST(PatchEmbed, IsAConvolutionWithThePatchAsStride) {
  PatchEmbed embed(3, 4, 10, torch::kFloat64);
  fill_parameters(*embed);
  const torch::Tensor image = some_numbers({2, 3, 8, 12}, 1);
  const torch::Tensor map =
      at::conv2d(image, embed->weight.view({10, 3, 4, 4}), embed->bias, /*stride=*/4);
  const torch::Tensor expected = map.flatten(2).transpose(1, 2);
  const torch::Tensor tokens = embed->forward(image);
  EXPECT_EQ(tokens.sizes(), (at::IntArrayRef{2, 6, 10}));
  EXPECT_LT((tokens - expected).abs().max().item<double>(), 1e-13);
}

TEST(PatchEmbed, GradientsAreThoseOfFiniteDifferences) {
  PatchEmbed embed(2, 2, 3, torch::kFloat64);
  fill_parameters(*embed);
  const torch::Tensor image = some_numbers({2, 2, 4, 4}, 1).set_requires_grad(true);
  EXPECT_LT(
      gradient_error([&] { return embed->forward(image); }, {image, embed->weight, embed->bias}),
      1e-6);
}

TEST(PatchEmbed, TakesNoImages) {
  PatchEmbed embed(3, 4, 10, torch::kFloat32);
  EXPECT_EQ(embed->forward(torch::empty({0, 3, 8, 8})).sizes(), (at::IntArrayRef{0, 4, 10}));
}

TEST(PatchEmbed, RefusesImagesThatThePatchDoesNotDivide) {
  PatchEmbed embed(3, 4, 10, torch::kFloat32);
  EXPECT_THROW(embed->forward(torch::empty({1, 3, 8, 10})), c10::Error);
  EXPECT_THROW(embed->forward(torch::empty({1, 1, 8, 8})), c10::Error);
}

}  // namespace
}  // namespace shoal
