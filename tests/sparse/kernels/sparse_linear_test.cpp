#include "sparse/kernels/sparse_linear.h"

#include <ATen/Parallel.h>
#include <ATen/ops/linear.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

#include "sparse/patterns/diagonal.h"
#include "tests/support/gradient_check.h"

// T tokens  m outputs  n inputs
namespace shoal {
namespace {

using testing::gradient_error;
using testing::relative_error;
using testing::some_numbers;

/// Some of the numbers 0 to `count` - 1 in another order, without a pattern.
torch::Tensor some_order(int64_t count, int64_t seed) {
  return some_numbers({count}, seed).argsort();
}

/// A mask, the layout that is made of it, and whether inputs or outputs are in another order.
struct Case {
  std::string name;
  torch::Tensor mask_mn;
  SparseOrder order;
  std::function<SparseLayoutPtr(const torch::Tensor&, const SparseOrder&)> make;

  SparseLayoutPtr layout() const { return make(mask_mn, order); }
  int64_t rows() const { return mask_mn.size(0); }
  int64_t columns() const { return mask_mn.size(1); }
  /// P S Q from S, as a dense matrix.
  torch::Tensor dense(const torch::Tensor& weight_mn) const {
    torch::Tensor result = weight_mn * mask_mn;
    if (order.inputs.defined()) result = result.index_select(1, order.inputs.argsort());
    if (order.outputs.defined()) result = result.index_select(0, order.outputs);
    return result;
  }
};

torch::Tensor mask_of_density(int64_t m, int64_t n, double density, int64_t seed) {
  return some_numbers({m, n}, seed) * 0.5 + 0.5 < density;
}

torch::Tensor diagonal_mask(int64_t m, int64_t n, const std::vector<int64_t>& offsets) {
  torch::Tensor mask = torch::zeros({m * n}, torch::kBool);
  const torch::Tensor places = Diagonals{m, n}.places(torch::kCPU);
  for (const int64_t offset : offsets) mask.index_fill_(0, places[offset], true);
  return mask.view({m, n});
}

torch::Tensor block_mask(const torch::Tensor& is_on, int64_t size) {
  return is_on.repeat_interleave(size, 0).repeat_interleave(size, 1);
}

std::vector<Case> unpermuted_cases() {
  torch::Tensor empty_rows = mask_of_density(37, 53, 0.3, 1);
  empty_rows.narrow(0, 5, 20).fill_(false);
  const auto blocks_of = [](int64_t size) {
    return [size](const torch::Tensor& mask, const SparseOrder& order) {
      return make_block_layout(mask, size, order);
    };
  };
  return {
      {"csr wide, rows without weights", empty_rows, {}, make_csr_layout},
      {"csr tall", mask_of_density(53, 37, 0.4, 2), {}, make_csr_layout},
      {"csr one row", mask_of_density(1, 19, 0.5, 3), {}, make_csr_layout},
      {"csr dense", mask_of_density(20, 33, 2.0, 4), {}, make_csr_layout},
      {"csr without weights", mask_of_density(6, 7, -1.0, 4), {}, make_csr_layout},
      {"diagonals square", diagonal_mask(40, 40, {0, 3, 4, 21, 39}), {}, make_diagonal_layout},
      {"diagonals wide", diagonal_mask(21, 50, {1, 30, 31, 49}), {}, make_diagonal_layout},
      {"diagonals tall", diagonal_mask(50, 21, {0, 25, 33, 49}), {}, make_diagonal_layout},
      {"diagonals one row", diagonal_mask(1, 19, {2, 18}), {}, make_diagonal_layout},
      {"diagonals one column", diagonal_mask(19, 1, {2, 18}), {}, make_diagonal_layout},
      {"diagonals dense", diagonal_mask(3, 4, {0, 1, 2, 3}), {}, make_diagonal_layout},
      {"diagonals in two windows",
       diagonal_mask(18, 1100, {5, 500, 600, 1099}),
       {},
       make_diagonal_layout},
      {"blocks of 16 wide", block_mask(mask_of_density(3, 5, 0.5, 5), 16), {}, blocks_of(16)},
      {"blocks of 32 tall", block_mask(mask_of_density(4, 2, 0.6, 6), 32), {}, blocks_of(32)},
      {"blocks of 48 dense", block_mask(mask_of_density(1, 2, 2.0, 7), 48), {}, blocks_of(48)},
      {"blocks, rows without weights",
       block_mask(torch::tensor({{0, 1}, {0, 0}, {1, 1}}) == 1, 16),
       {},
       blocks_of(16)},
  };
}

/// Each as it is, and with inputs, outputs or both in another order.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Case& plain : unpermuted_cases()) {
    const torch::Tensor inputs = some_order(plain.columns(), 8),
                        outputs = some_order(plain.rows(), 9);
    all.push_back(plain);
    for (const auto& [name, order] : {std::pair{", inputs permuted", SparseOrder{inputs, {}}},
                                      std::pair{", outputs permuted", SparseOrder{{}, outputs}},
                                      std::pair{", both permuted", SparseOrder{inputs, outputs}}}) {
      all.push_back(plain);
      all.back().name += name;
      all.back().order = order;
    }
  }
  return all;
}

/// x, S and b of a case that require gradients.
struct Problem {
  torch::Tensor x, weight, bias;

  Problem(const Case& c, int64_t tokens, torch::Dtype dtype = torch::kFloat64)
      : x(some_numbers({tokens, c.columns()}, 10, dtype).requires_grad_()),
        weight(some_numbers({c.rows(), c.columns()}, 11, dtype).requires_grad_()),
        bias(some_numbers({c.rows()}, 12, dtype).requires_grad_()) {}

  /// The output and the gradients of a sum with uneven weights.
  std::vector<torch::Tensor> results(const torch::Tensor& y) const {
    const torch::Tensor objective = (y * some_numbers(y.sizes(), 13, y.scalar_type())).sum();
    std::vector<torch::Tensor> all = torch::autograd::grad({objective}, {x, weight, bias});
    all.push_back(y.detach());
    return all;
  }
};

void expect_masked_dense(const Case& c, int64_t tokens, torch::Dtype dtype, double tolerance) {
  const Problem problem(c, tokens, dtype);
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
  for (const Case& c : cases()) {
    for (const int64_t tokens : {0, 1, 3, 13, 64, 197}) {
      expect_masked_dense(c, tokens, torch::kFloat64, kDoubleError);
    }
  }
}

TEST(SparseLinear, IsTheMaskedDenseLayerInFloat32) {
  for (const Case& c : unpermuted_cases()) {
    for (const int64_t tokens : {1, 2, 64, 197}) {
      expect_masked_dense(c, tokens, torch::kFloat32, kFloatError);
    }
  }
}

// So many that the gradient of the weights is summed in two parts.
TEST(SparseLinear, TakesManyTokens) {
  for (const Case& c : unpermuted_cases()) {
    expect_masked_dense(c, 5000, torch::kFloat64, kDoubleError);
  }
}

TEST(SparseLinear, GradientsAreThoseOfFiniteDifferences) {
  for (const Case& c : cases()) {
    if (c.mask_mn.numel() > 3000) continue;
    const Problem problem(c, 3);
    const SparseLayoutPtr layout = c.layout();
    const auto call = [&] {
      return sparse_linear(problem.x, problem.weight, problem.bias, layout);
    };
    EXPECT_LE(gradient_error(call, {problem.x, problem.weight, problem.bias}), 1e-6) << c.name;
  }
}

TEST(SparseLinear, ResultsAreIndependentOfTheNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const Case& c : cases()) {
    for (const int64_t tokens : {1, 70, 5000}) {
      const Problem problem(c, tokens, torch::kFloat32);
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
  const Case c = cases()[0];
  const Problem problem(c, 24);
  const torch::Tensor x = problem.x.detach().view({2, 12, c.columns()}).transpose(0, 1);
  const torch::Tensor y = sparse_linear(x, problem.weight, {}, c.layout());
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{12, 2, c.rows()}));
  EXPECT_LE(relative_error(y, at::linear(x, c.dense(problem.weight))), kDoubleError);
}

TEST(SparseLinear, PackedValuesGiveTheSame) {
  for (const Case& c : cases()) {
    const Problem problem(c, 5);
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
