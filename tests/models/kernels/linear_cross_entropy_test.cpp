#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <vector>

#include "models/kernels/linear_cross_entropy.h"
#include "runtime/data/batch.h"
#include "tests/support/gradient_check.h"

// T tokens  D features  V vocabulary, padded
namespace shoal {
namespace {

using testing::gradient_error;
using testing::relative_error;
using testing::some_numbers;

struct Case {
  torch::Tensor x_TD, weight_VD, label_T;
  int64_t vocabulary;

  torch::Tensor loss() const { return linear_cross_entropy(x_TD, weight_VD, label_T, vocabulary); }
  /// All logits at once, by LibTorch.
  torch::Tensor reference() const {
    const torch::Tensor logits_TV =
        at::linear(x_TD, weight_VD.narrow(0, 0, vocabulary).to(x_TD.scalar_type()));
    return at::cross_entropy_loss(
        logits_TV.scalar_type() == torch::kBFloat16 ? logits_TV.to(torch::kFloat32) : logits_TV,
        label_T, {}, at::Reduction::Sum, kNoLabel);
  }
};

/// Labels 3, 10, 17, ... modulo the vocabulary; every fifth token has none.
Case make_case(int64_t tokens, int64_t vocabulary, int64_t padded,
               torch::Dtype dtype = torch::kFloat64) {
  const torch::Tensor label_T =
      torch::arange(tokens, torch::kInt64).mul(7).add(3).remainder(vocabulary);
  label_T.slice(0, 4, tokens, 5).fill_(kNoLabel);
  const torch::Dtype weight = dtype == torch::kBFloat16 ? torch::kFloat32 : dtype;
  return {some_numbers({tokens, 6}, 1).to(dtype).requires_grad_(),
          (some_numbers({padded, 6}, 2) * 2).to(weight).requires_grad_(), label_T, vocabulary};
}

struct Gradients {
  torch::Tensor loss, x_TD, weight_VD;
};

Gradients gradients_of(const Case& c, const torch::Tensor& loss) {
  c.x_TD.mutable_grad().reset();
  c.weight_VD.mutable_grad().reset();
  (loss * 0.25).backward();
  return {loss.detach(), c.x_TD.grad(), c.weight_VD.grad()};
}

void expect_equals_reference(const Case& c, double tolerance) {
  const Gradients expected = gradients_of(c, c.reference());
  const Gradients found = gradients_of(c, c.loss());
  EXPECT_LE(relative_error(found.loss, expected.loss), tolerance);
  EXPECT_LE(relative_error(found.x_TD, expected.x_TD), tolerance);
  EXPECT_LE(relative_error(found.weight_VD, expected.weight_VD), tolerance);
}

TEST(LinearCrossEntropy, IsThatOfAllLogitsAtOnce) {
  expect_equals_reference(make_case(10, 7, 7), 1e-14);
  expect_equals_reference(make_case(300, 33, 64), 1e-14);
  expect_equals_reference(make_case(300, 257, 257, torch::kFloat32), 2e-6);
  // Products of bfloat16 in another order: 8 bits.
  expect_equals_reference(make_case(300, 257, 264, torch::kBFloat16), 2e-2);
}

TEST(LinearCrossEntropy, IsThatOfAllLogitsAtOnceAlsoInChunks) {
  // 2^18 logits a token: chunks of 64 tokens.
  expect_equals_reference(make_case(70, (1 << 18) - 3, 1 << 18), 1e-13);
}

TEST(LinearCrossEntropy, HasTheGradientsOfFiniteDifferences) {
  const Case c = make_case(9, 5, 8);
  EXPECT_LE(gradient_error([&] { return c.loss(); }, {c.x_TD, c.weight_VD}), 1e-6);
}

TEST(LinearCrossEntropy, GivesPaddingNoProbabilityAndNoGradient) {
  const Case c = make_case(9, 5, 8);
  {
    const torch::NoGradGuard no_grad;
    c.weight_VD.narrow(0, 5, 3).fill_(1e3);
  }
  const Gradients found = gradients_of(c, c.loss());
  EXPECT_NEAR(found.loss.item<double>(), c.reference().item<double>(), 1e-12);
  EXPECT_TRUE(found.weight_VD.narrow(0, 5, 3).eq(0).all().item<bool>());
}

TEST(LinearCrossEntropy, HasNoLossWithoutLabels) {
  Case c = make_case(9, 5, 8);
  c.label_T.fill_(kNoLabel);
  const Gradients found = gradients_of(c, c.loss());
  EXPECT_EQ(found.loss.item<double>(), 0.0);
  EXPECT_TRUE(found.x_TD.eq(0).all().item<bool>());
  EXPECT_TRUE(found.weight_VD.eq(0).all().item<bool>());
}

TEST(LinearCrossEntropy, TakesNoTokens) {
  const Case c = make_case(0, 5, 8);
  const Gradients found = gradients_of(c, c.loss());
  EXPECT_EQ(found.loss.item<double>(), 0.0);
  EXPECT_EQ(found.x_TD.sizes(), (std::vector<int64_t>{0, 6}));
  EXPECT_TRUE(found.weight_VD.eq(0).all().item<bool>());
}

TEST(LinearCrossEntropy, DifferentiatesOnlyWhatIsTrained) {
  Case c = make_case(9, 5, 8);
  const Gradients both = gradients_of(c, c.loss());
  c.weight_VD.requires_grad_(false);
  c.weight_VD.mutable_grad().reset();
  c.x_TD.mutable_grad().reset();
  (c.loss() * 0.25).backward();
  EXPECT_FALSE(c.weight_VD.grad().defined());
  EXPECT_TRUE(c.x_TD.grad().equal(both.x_TD));
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(c.loss().requires_grad());
  EXPECT_EQ(c.loss().item<double>(), both.loss.item<double>());
}

TEST(LinearCrossEntropy, IsNotANumberWhereLogitsAreNotFinite) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64}) {
      const Case c = make_case(9, 5, 8, dtype);
      {
        const torch::NoGradGuard no_grad;
        c.x_TD[2][3] = bad;
      }
      EXPECT_TRUE(std::isnan(gradients_of(c, c.loss()).loss.item<double>()));
    }
  }
}

TEST(LinearCrossEntropy, IsTheSameForAnyNumberOfThreads) {
  const Case c = make_case(700, 1000, 1024, torch::kFloat32);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Gradients one = gradients_of(c, c.loss());
  at::set_num_threads(3);
  const Gradients three = gradients_of(c, c.loss());
  at::set_num_threads(threads);
  EXPECT_TRUE(one.loss.equal(three.loss));
  EXPECT_TRUE(one.x_TD.equal(three.x_TD));
  EXPECT_TRUE(one.weight_VD.equal(three.weight_VD));
}

TEST(LinearCrossEntropy, RefusesASecondBackwardPass) {
  const Case c = make_case(9, 5, 8);
  const torch::Tensor loss = c.loss();
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(LinearCrossEntropy, RefusesLabelsOutOfRangeAndOtherShapes) {
  for (const int64_t bad : {5, -1}) {
    Case c = make_case(9, 5, 8);
    c.label_T[3] = bad;
    EXPECT_THROW(c.loss(), c10::Error);
  }
  Case c = make_case(9, 5, 8);
  EXPECT_THROW(linear_cross_entropy(c.x_TD, c.weight_VD, c.label_T, 9), c10::Error);
  EXPECT_THROW(linear_cross_entropy(c.x_TD, c.weight_VD, c.label_T.narrow(0, 0, 8), 5), c10::Error);
  EXPECT_THROW(linear_cross_entropy(c.x_TD.narrow(1, 0, 5), c.weight_VD, c.label_T, 5), c10::Error);
}

}  // namespace
}  // namespace shoal
