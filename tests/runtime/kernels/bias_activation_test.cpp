#include "runtime/kernels/bias_activation.h"

#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using testing::gradient_error;
using testing::some_numbers;

constexpr Activation kAll[] = {Activation::kGelu, Activation::kGeluTanh, Activation::kRelu,
                               Activation::kSilu, Activation::kSquaredRelu};

/// The activation without bias, and its derivative.
std::pair<torch::Tensor, torch::Tensor> activate(const torch::Tensor& x, Activation activation) {
  const torch::Tensor leaf = x.detach().clone().set_requires_grad(true);
  const torch::Tensor y = bias_activation(leaf, {}, activation);
  y.backward(torch::ones_like(y));
  return {y.detach(), leaf.grad()};
}

double exact(Activation activation, double x) {
  switch (activation) {
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kSquaredRelu:
      return x > 0 ? x * x : 0;
  }
  return NAN;
}

TEST(BiasActivation, Float64IsTheFormula) {
  const torch::Tensor x = torch::linspace(-9, 9, 301, torch::kFloat64).reshape({7, 43});
  const torch::Tensor bias = some_numbers({43}, 1);
  for (const Activation activation : kAll) {
    const torch::Tensor y = bias_activation(x, bias, activation);
    for (int64_t r = 0; r < 7; ++r) {
      for (int64_t c = 0; c < 43; ++c) {
        const double v = x[r][c].item<double>() + bias[c].item<double>();
        EXPECT_NEAR(y[r][c].item<double>(), exact(activation, v), 1e-14);
      }
    }
  }
}

TEST(BiasActivation, Float32IsWithinAFewRoundingsOfTheFormula) {
  const torch::Tensor x = torch::linspace(-30, 30, 6007, torch::kFloat64).to(torch::kFloat32);
  for (const Activation activation : kAll) {
    const auto [y, slope] = activate(x, activation);
    const auto [y64, slope64] = activate(x.to(torch::kFloat64), activation);
    const torch::Tensor size = torch::maximum(x.to(torch::kFloat64).abs(), y64).clamp_min(1.0);
    EXPECT_LT(((y - y64).abs() / size).max().item<double>(), 3e-7) << static_cast<int>(activation);
    EXPECT_LT((slope - slope64).abs().max().item<double>(), 3e-6) << static_cast<int>(activation);
  }
}

TEST(BiasActivation, GradientsAreThoseOfFiniteDifferences) {
  for (const Activation activation : kAll) {
    torch::Tensor x = some_numbers({3, 5, 4}, 2).set_requires_grad(true);
    torch::Tensor bias = some_numbers({4}, 3).set_requires_grad(true);
    EXPECT_LT(gradient_error([&] { return bias_activation(x, bias, activation); }, {x, bias}), 1e-7)
        << static_cast<int>(activation);
    EXPECT_LT(gradient_error([&] { return bias_activation(x, {}, activation); }, {x}), 1e-7);
  }
}

TEST(BiasActivation, IsTheSameWithGradientsOff) {
  const torch::Tensor x = some_numbers({3, 5}, 2).set_requires_grad(true);
  const torch::Tensor bias = some_numbers({5}, 3);
  const torch::Tensor y = bias_activation(x, bias, Activation::kGelu);
  torch::NoGradGuard no_grad;
  const torch::Tensor without = bias_activation(x, bias, Activation::kGelu);
  EXPECT_FALSE(without.requires_grad());
  EXPECT_TRUE(torch::equal(without, y));
}

TEST(BiasActivation, RefusesASecondDerivative) {
  const torch::Tensor x = some_numbers({3, 5}, 2).set_requires_grad(true);
  const torch::Tensor y = bias_activation(x, {}, Activation::kGelu);
  EXPECT_THROW(y.sum().backward({}, std::nullopt, /*create_graph=*/true), c10::Error);
}

TEST(BiasActivation, BiasGradientSumsManyRowsAccurately) {
  const torch::Tensor bias = torch::full({17}, 0.05f).set_requires_grad(true);
  const torch::Tensor y =
      bias_activation(torch::zeros({20000, 17}), bias, Activation::kSquaredRelu);
  y.backward(torch::full({20000, 17}, 0.3f));
  EXPECT_LT((bias.grad() / 600.0 - 1).abs().max().item<double>(), 5e-6);
}

TEST(BiasActivation, NonFiniteInputsStayVisible) {
  const float nan = std::nanf("");
  const float inf = INFINITY;
  const torch::Tensor x = torch::tensor({nan, inf, 1e30f});
  for (const Activation activation : kAll) {
    const torch::Tensor y = activate(x, activation).first;
    EXPECT_TRUE(std::isnan(y[0].item<float>()));
    EXPECT_FALSE(std::isfinite(y[1].item<float>()));
    const bool squares = activation == Activation::kSquaredRelu;
    EXPECT_EQ(y[2].item<float>(), squares ? inf : 1e30f);
  }
}

TEST(BiasActivation, Bfloat16IsFloat32RoundedOnce) {
  for (const Activation activation : kAll) {
    const torch::Tensor x = some_numbers({7, 43}, 1).mul(4).to(torch::kBFloat16);
    const torch::Tensor bias = some_numbers({43}, 2).to(torch::kBFloat16);
    const auto run = [&](torch::Dtype dtype) {
      const torch::Tensor own_x = x.to(dtype).detach().set_requires_grad(true);
      const torch::Tensor own_bias = bias.to(dtype).detach().set_requires_grad(true);
      const torch::Tensor y = bias_activation(own_x, own_bias, activation);
      y.backward(some_numbers(y.sizes(), 3).to(torch::kBFloat16).to(dtype));
      return std::vector<torch::Tensor>{y.detach(), own_x.grad(), own_bias.grad()};
    };
    const auto narrow = run(torch::kBFloat16), wide = run(torch::kFloat32);
    // One rounding, and a little for products that are contracted otherwise.
    EXPECT_TRUE(at::allclose(narrow[0].to(torch::kFloat32), wide[0], 1.01 * 0.00390625, 1e-7));
    // The derivative is rounded before it is multiplied by.
    for (size_t i = 1; i < narrow.size(); ++i) {
      EXPECT_EQ(narrow[i].scalar_type(), torch::kBFloat16);
      const double apart = (narrow[i].to(torch::kFloat32) - wide[i]).abs().max().item<double>();
      EXPECT_LT(apart, 3 * 0.00390625 * wide[i].abs().max().item<double>()) << i;
    }
  }
}

TEST(BiasActivation, EqualRowsGiveEqualBitsHoweverManyTheyAre) {
  const auto value_and_gradient = [](const torch::Tensor& rows, Activation activation) {
    const torch::Tensor x = rows.clone().set_requires_grad(true);
    const torch::Tensor y = bias_activation(
        x, torch::full({x.size(1)}, 0.1, x.options().requires_grad(false)), activation);
    y.sum().backward();
    return torch::cat({y.detach(), x.grad()}, 1);
  };
  for (const auto dtype : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    for (const Activation activation : kAll) {
      for (const int64_t columns : {3, 8, 13, 31, 70}) {
        const torch::Tensor row = (some_numbers({1, columns}, 5) * 4).to(dtype);
        const torch::Tensor one = value_and_gradient(row, activation);
        for (const int64_t rows : {2, 5, 33}) {
          EXPECT_TRUE(torch::equal(value_and_gradient(row.expand({rows, columns}), activation),
                                   one.expand({rows, 2 * columns})))
              << static_cast<int>(activation) << " of " << columns;
        }
      }
    }
  }
}

TEST(BiasActivation, TakesNoRows) {
  torch::Tensor x = torch::empty({0, 6}, torch::kFloat64).set_requires_grad(true);
  torch::Tensor bias = some_numbers({6}, 4).set_requires_grad(true);
  bias_activation(x, bias, Activation::kGelu).sum().backward();
  EXPECT_EQ(bias.grad().abs().max().item<double>(), 0.0);
}

TEST(BiasActivation, RefusesWhatDoesNotFit) {
  EXPECT_THROW(bias_activation(torch::zeros({2, 3}), torch::zeros({2}), Activation::kRelu),
               c10::Error);
  EXPECT_THROW(bias_activation(torch::zeros({2, 3}).t(), torch::zeros({2}), Activation::kRelu),
               c10::Error);
  EXPECT_THROW(bias_activation(torch::zeros({2, 3}, torch::kInt64), {}, Activation::kRelu),
               c10::Error);
}

}  // namespace
}  // namespace shoal
