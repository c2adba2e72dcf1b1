#include "models/kernels/layer_norm.h"

#include <ATen/ops/layer_norm.h>
#include <gtest/gtest.h>

#include "tests/models/kernels/layer_norm_of.h"
#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using testing::gradient_error;
using testing::layer_norm;
using testing::layer_norm_transposed;
using testing::some_numbers;

torch::Tensor leaf(at::IntArrayRef sizes, int64_t seed) {
  return some_numbers(sizes, seed).requires_grad_();
}

double largest(const torch::Tensor& difference) {
  return difference.numel() == 0 ? 0.0 : difference.abs().max().item<double>();
}

TEST(LayerNorm, IsTheFormulaOverTheLastDimension) {
  for (const int64_t width : {1, 7, 16, 33, 96}) {
    const torch::Tensor x = some_numbers({3, 5, width}, 1) * 4 + 2;
    const torch::Tensor weight = some_numbers({width}, 2), bias = some_numbers({width}, 3);
    const torch::Tensor mean = x.mean(-1, true);
    const torch::Tensor variance = (x - mean).pow(2).mean(-1, true);
    const torch::Tensor expected = (x - mean) / (variance + 1e-6).sqrt() * weight + bias;
    EXPECT_LT(largest(layer_norm(x, weight, bias) - expected), 1e-13) << width;
    EXPECT_LT(largest(layer_norm_transposed(x, weight, bias) - expected.transpose(1, 2)), 1e-13);
  }
}

TEST(LayerNorm, Float32IsWithinRoundingOfFloat64) {
  const torch::Tensor x = some_numbers({4, 70, 96}, 1) * 3 + 10;
  const torch::Tensor weight = some_numbers({96}, 2), bias = some_numbers({96}, 3);
  const torch::Tensor y =
      layer_norm(x.to(torch::kFloat32), weight.to(torch::kFloat32), bias.to(torch::kFloat32));
  // x itself is rounded: 10 * 2^-24 over a standard deviation of about 2.
  EXPECT_LT(largest(y.to(torch::kFloat64) - layer_norm(x, weight, bias)), 5e-6);
}

TEST(LayerNorm, OfEitherKindTakesItsEpsAndMayLackABias) {
  const torch::NoGradGuard no_grad;
  for (const int64_t width : {7, 16, 33}) {
    const torch::Tensor x = some_numbers({3, 5, width}, 1) * 0.01 + 0.02;
    for (const double eps : {1e-5, 1e-6}) {
      const auto normed = [&](const NormOptions& options) {
        LayerNorm norm(width, torch::TensorOptions(torch::kFloat64), options);
        norm->weight.copy_(some_numbers({width}, 2));
        if (norm->bias.defined()) norm->bias.copy_(some_numbers({width}, 3));
        EXPECT_EQ(norm->bias.defined(), options.bias && options.kind == NormKind::kLayer);
        return norm->forward(x);
      };
      const torch::Tensor mean = x.mean(-1, true), weight = some_numbers({width}, 2);
      const torch::Tensor centred =
          (x - mean) / ((x - mean).pow(2).mean(-1, true) + eps).sqrt() * weight;
      EXPECT_LT(largest(normed({NormKind::kLayer, eps, false}) - centred), 1e-12);
      EXPECT_LT(largest(normed({NormKind::kLayer, eps, true}) - centred - some_numbers({width}, 3)),
                1e-12);
      EXPECT_LT(largest(normed({NormKind::kRms, eps, true}) -
                        x / (x.pow(2).mean(-1, true) + eps).sqrt() * weight),
                1e-12);
    }
  }
}

TEST(LayerNorm, GradientsWithoutABiasAreThoseOfFiniteDifferences) {
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    LayerNorm norm(18, torch::TensorOptions(torch::kFloat64), NormOptions{kind, 1e-5, false});
    norm->weight.detach().copy_(some_numbers({18}, 2));
    const torch::Tensor x = leaf({2, 3, 18}, 1);
    EXPECT_LT(gradient_error(
                  [&] {
                    const NormedBranch y = norm->branch(x);
                    return y.normed + y.residual * 0.3;
                  },
                  {x, norm->weight}),
              1e-6);
  }
}

TEST(LayerNorm, GradientsAreThoseOfFiniteDifferences) {
  const torch::Tensor x = leaf({2, 3, 18}, 1), weight = leaf({18}, 2), bias = leaf({18}, 3);
  EXPECT_LT(gradient_error([&] { return layer_norm(x, weight, bias); }, {x, weight, bias}), 1e-6);
  EXPECT_LT(
      gradient_error([&] { return layer_norm_transposed(x, weight, bias); }, {x, weight, bias}),
      1e-6);
}

TEST(LayerNorm, ABranchAddsItsResidualsGradient) {
  for (const auto dtype : {torch::kFloat64, torch::kBFloat16}) {
    for (const bool transposed : {false, true}) {
      LayerNorm norm(18, torch::TensorOptions(torch::kFloat64).requires_grad(true));
      if (dtype == torch::kBFloat16) norm->to(torch::kFloat32);
      {
        const torch::NoGradGuard no_grad;
        norm->weight.copy_(some_numbers({18}, 3));
        norm->bias.copy_(some_numbers({18}, 4));
      }
      const auto gradient = [&](bool as_branch) {
        const torch::Tensor x = some_numbers({2, 3, 18}, 1).to(dtype).requires_grad_();
        NormedBranch y{layer_norm(x, norm->weight, norm->bias), x};
        if (transposed) y.normed = layer_norm_transposed(x, norm->weight, norm->bias);
        if (as_branch) y = transposed ? norm->branch_transposed(x) : norm->branch(x);
        (y.normed.pow(2).sum() + (y.residual * some_numbers({2, 3, 18}, 2).to(dtype)).sum())
            .backward();
        return x.grad();
      };
      const double tolerance = dtype == torch::kBFloat16 ? 0.05 : 1e-13;
      EXPECT_LT(largest(gradient(true) - gradient(false)), tolerance) << dtype << transposed;
    }
  }
}

TEST(LayerNorm, TransposedResultIsContiguous) {
  const torch::Tensor y =
      layer_norm_transposed(some_numbers({2, 5, 20}, 1), torch::ones({20}, torch::kFloat64),
                            torch::zeros({20}, torch::kFloat64));
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{2, 20, 5}));
  EXPECT_TRUE(y.is_contiguous());
}

TEST(LayerNorm, TakesNoImagesForwardAndBackward) {
  const torch::Tensor x = leaf({0, 3, 4}, 1), weight = leaf({4}, 2), bias = leaf({4}, 3);
  const torch::Tensor y = layer_norm_transposed(x, weight, bias);
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{0, 4, 3}));
  (y.sum() + layer_norm(x, weight, bias).sum()).backward();
  EXPECT_EQ(largest(weight.grad()), 0.0);
  EXPECT_EQ(largest(bias.grad()), 0.0);
}

TEST(LayerNorm, RefusesParametersOfAnotherWidth) {
  const torch::Tensor x = some_numbers({2, 3, 4}, 1);
  EXPECT_THROW(layer_norm(x, torch::ones({5}, torch::kFloat64), torch::ones({5}, torch::kFloat64)),
               c10::Error);
  EXPECT_THROW(layer_norm(x.transpose(1, 2), torch::ones({3}, torch::kFloat64),
                          torch::ones({3}, torch::kFloat64)),
               c10::Error);
}

}  // namespace
}  // namespace shoal
