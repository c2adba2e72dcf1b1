#include "sparse/kernels/sparse_linear.h"

#include <ATen/Parallel.h>
#include <ATen/ops/linear.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/sparse/kernels/sparse_cases.h"
#include "tests/support/gradient_check.h"

// T tokens  m outputs  n inputs
namespace shoal {
namespace {

using testing::gradient_error;
using testing::mask_of_density;
using testing::relative_error;
using testing::sparse_cases;
using testing::SparseCase;
using testing::SparseProblem;
using testing::unpermuted_sparse_cases;

void expect_masked_dense(const SparseCase& c, int64_t tokens, torch::Dtype dtype,
                         double tolerance) {
  const SparseProblem problem(c, tokens, dtype);
  const auto got =
      problem.results(sparse_linear(problem.x, problem.weight, problem.bias, c.layout()));
  const auto expected =
      problem.results(at::linear(problem.x, c.dense(problem.weight), problem.bias));
  const std::vector<std::string> names{"gradient of x", "gradient of the weight",
                                       "gradient of the bias", "output"};
  for (size_t i = 0; i < names.size(); ++i) {
    ASSERT_EQ(got[i].sizes(), expected[i].sizes()) << c.name << ": " << names[i];
    if (got[i].numel() == 0) continue;
    EXPECT_LE(relative_error(got[i], expected[i]), tolerance)
        << c.name << ", " << tokens << " tokens: " << names[i];
  }
  EXPECT_FALSE((got[1] * ~c.mask_mn).any().item<bool>()) << c.name;
}

// Sums of at most 1,100 products, of tokens 5,000, in another order.
constexpr double kDoubleError = 1e-13, kFloatError = 2e-5;

TEST(SparseLinear, IsTheMaskedDenseLayerAndSoAreItsGradients) {
  for (const SparseCase& c : sparse_cases()) {
    for (const int64_t tokens : {0, 1, 3, 13, 64, 197}) {
      expect_masked_dense(c, tokens, torch::kFloat64, kDoubleError);
    }
  }
}

TEST(SparseLinear, IsTheMaskedDenseLayerInFloat32) {
  for (const SparseCase& c : unpermuted_sparse_cases()) {
    for (const int64_t tokens : {1, 2, 64, 197}) {
      expect_masked_dense(c, tokens, torch::kFloat32, kFloatError);
    }
  }
}

// So many that the gradient of the weights is summed in two parts.
TEST(SparseLinear, TakesManyTokens) {
  for (const SparseCase& c : unpermuted_sparse_cases()) {
    expect_masked_dense(c, 5000, torch::kFloat64, kDoubleError);
  }
}

TEST(SparseLinear, GradientsAreThoseOfFiniteDifferences) {
  for (const SparseCase& c : sparse_cases()) {
    if (c.mask_mn.numel() > 3000) continue;
    const SparseProblem problem(c, 3);
    const SparseLayoutPtr layout = c.layout();
    const auto call = [&] {
      return sparse_linear(problem.x, problem.weight, problem.bias, layout);
    };
    EXPECT_LE(gradient_error(call, {problem.x, problem.weight, problem.bias}), 1e-6) << c.name;
  }
}

TEST(SparseLinear, ResultsAreIndependentOfTheNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const SparseCase& c : sparse_cases()) {
    for (const int64_t tokens : {1, 70, 5000}) {
      const SparseProblem problem(c, tokens, torch::kFloat32);
      std::vector<torch::Tensor> one;
      for (const int count : {1, 3, 8}) {
        at::set_num_threads(count);
        const auto got =
            problem.results(sparse_linear(problem.x, problem.weight, problem.bias, c.layout()));
        if (one.empty()) one = got;
        for (size_t i = 0; i < got.size(); ++i) {
          EXPECT_TRUE(got[i].equal(one[i])) << c.name << ", " << tokens << " tokens: " << i;
        }
      }
    }
  }
  at::set_num_threads(threads);
}

TEST(SparseLinear, TakesTokensInAnyShapeAndNoBias) {
  const SparseCase c = sparse_cases()[0];
  const SparseProblem problem(c, 24);
  const torch::Tensor x = problem.x.detach().view({2, 12, c.columns()}).transpose(0, 1);
  const torch::Tensor y = sparse_linear(x, problem.weight, {}, c.layout());
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{12, 2, c.rows()}));
  EXPECT_LE(relative_error(y, at::linear(x, c.dense(problem.weight))), kDoubleError);
}

TEST(SparseLinear, PackedValuesGiveTheSame) {
  for (const SparseCase& c : sparse_cases()) {
    const SparseProblem problem(c, 5);
    const SparseLayoutPtr layout = c.layout();
    const torch::Tensor values = layout->pack(problem.weight.detach());
    const torch::Tensor bias = problem.bias.detach();
    EXPECT_TRUE(sparse_linear_packed(problem.x.detach(), values, bias, *layout)
                    .equal(sparse_linear(problem.x, problem.weight, problem.bias, layout)))
        << c.name;
  }
}

TEST(SparseLinear, RefusesWhatDoesNotFit) {
  const SparseLayoutPtr layout = make_csr_layout(mask_of_density(4, 6, 0.5, 1), {});
  const torch::Tensor x = torch::zeros({2, 6}), weight = torch::zeros({4, 6}),
                      bias = torch::zeros({4});
  EXPECT_NO_THROW(sparse_linear(x, weight, bias, layout));
  EXPECT_THROW(sparse_linear(x.to(torch::kBFloat16), weight, bias, layout), c10::Error);
  EXPECT_THROW(sparse_linear(x.to(torch::kFloat64), weight, bias, layout), c10::Error);
  EXPECT_THROW(sparse_linear(torch::zeros({2, 5}), weight, bias, layout), c10::Error);
  EXPECT_THROW(sparse_linear(x, torch::zeros({6, 4}), bias, layout), c10::Error);
  EXPECT_THROW(sparse_linear(x, weight, torch::zeros({6}), layout), c10::Error);
}

TEST(SparseLayouts, RefuseMasksOfAnotherPattern) {
  const torch::Tensor mask = mask_of_density(32, 32, 0.5, 1);
  EXPECT_THROW(make_diagonal_layout(mask, {}), c10::Error);
  EXPECT_THROW(make_block_layout(mask, 16, {}), c10::Error);
  EXPECT_THROW(make_block_layout(torch::ones({32, 24}, torch::kBool), 16, {}), c10::Error);
  EXPECT_THROW(make_block_layout(torch::ones({24, 24}, torch::kBool), 8, {}), c10::Error);
}

}  // namespace
}  // namespace shoal
