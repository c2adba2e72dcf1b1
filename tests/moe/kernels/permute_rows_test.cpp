#include "moe/kernels/permute_rows.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "tests/moe/routing/make_routing.h"
#include "tests/support/gradient_check.h"

// T tokens  A rows  D width
namespace shoal {
namespace {

using testing::gradient_error;
using testing::some_numbers;
using testing::values;
using Ids = std::vector<int64_t>;

const Ids kTokens{2, 0, -1, 2, 3, 2, -1, 0};  // token 1 has no row, token 2 has three

RowIndex index_of(const Ids& tokens, int64_t num_tokens) {
  return make_row_index(torch::tensor(tokens, torch::kInt64), num_tokens);
}

TEST(RowIndex, ListsTheRowsOfEachTokenInOrder) {
  const RowIndex index = index_of(kTokens, 4);
  EXPECT_EQ(values(index.first_T1), (Ids{0, 2, 2, 5, 6}));
  EXPECT_EQ(values(index.row_A), (Ids{1, 7, 0, 3, 5, 4}));
  EXPECT_THROW(index_of({0, 4}, 4), c10::Error);
  EXPECT_THROW(index_of({-2}, 4), c10::Error);
}

TEST(GatherRows, CopiesTokensAndZeroesPadding) {
  const torch::Tensor x = some_numbers({4, 19}, 1);
  const torch::Tensor rows = gather_rows(x, index_of(kTokens, 4));
  for (int64_t a = 0; a < 8; ++a) {
    const torch::Tensor expected =
        kTokens[a] < 0 ? torch::zeros({19}, torch::kFloat64) : x[kTokens[a]];
    EXPECT_TRUE(torch::equal(rows[a], expected)) << a;
  }
}

TEST(CombineRows, SumsTheWeightedRowsOfEachToken) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    const torch::Tensor rows = some_numbers({8, 37}, 2, dtype);
    const torch::Tensor weight = some_numbers({8}, 3, dtype);
    const torch::Tensor y = combine_rows(rows, weight, index_of(kTokens, 4));
    torch::Tensor expected = torch::zeros({4, 37}, dtype);
    for (int64_t a = 0; a < 8; ++a) {
      if (kTokens[a] >= 0) expected[kTokens[a]] += weight[a] * rows[a];
    }
    // Sums of up to three products below 1.
    EXPECT_LT((y - expected).abs().max().item<double>(), dtype == torch::kFloat32 ? 1e-6 : 1e-15);
    EXPECT_EQ(y[1].abs().max().item<double>(), 0.0);
  }
}

TEST(SumRows, IsCombineRowsWithWeightsOfOne) {
  const RowIndex index = index_of(kTokens, 4);
  const torch::Tensor rows = some_numbers({8, 37}, 2).set_requires_grad(true);
  const torch::Tensor upstream = some_numbers({4, 37}, 3);
  const torch::Tensor expected = combine_rows(rows, torch::ones({8}, torch::kFloat64), index);
  const torch::Tensor found = sum_rows(rows, index);
  EXPECT_TRUE(torch::equal(found, expected));
  const auto grad_of = [&](const torch::Tensor& y) {
    return torch::autograd::grad({(y * upstream).sum()}, {rows})[0];
  };
  EXPECT_TRUE(torch::equal(grad_of(found), grad_of(expected)));
}

TEST(CombineRows, NeverReadsPaddingRows) {  // P3
  torch::Tensor rows = some_numbers({8, 5}, 2);
  torch::Tensor weight = some_numbers({8}, 3);
  for (const int64_t a : {2, 6}) rows[a].fill_(std::nan(""));
  weight[2].fill_(std::nan(""));
  rows.set_requires_grad(true);
  weight.set_requires_grad(true);
  const torch::Tensor y = combine_rows(rows, weight, index_of(kTokens, 4));
  y.sum().backward();
  EXPECT_TRUE(y.isfinite().all().item<bool>());
  for (const int64_t a : {2, 6}) {
    EXPECT_EQ(rows.grad()[a].abs().max().item<double>(), 0.0);
    EXPECT_EQ(weight.grad()[a].item<double>(), 0.0);
  }
}

TEST(PermuteRows, GradientsAreThoseOfFiniteDifferences) {
  const RowIndex index = index_of(kTokens, 4);
  torch::Tensor x = some_numbers({4, 18}, 4).set_requires_grad(true);
  EXPECT_LT(gradient_error([&] { return gather_rows(x, index); }, {x}), 1e-8);
  torch::Tensor rows = some_numbers({8, 18}, 5).set_requires_grad(true);
  torch::Tensor weight = some_numbers({8}, 6).set_requires_grad(true);
  EXPECT_LT(gradient_error([&] { return combine_rows(rows, weight, index); }, {rows, weight}),
            1e-8);
  const torch::Tensor order = torch::tensor({3, 1, 0, 2}), inverse = torch::tensor({2, 1, 3, 0});
  EXPECT_LT(gradient_error([&] { return permute_rows(x, order, inverse); }, {x}), 1e-8);
  EXPECT_TRUE(torch::equal(permute_rows(x, order, inverse)[0], x[3]));
}

TEST(PermuteRows, TakesNoTokensAndNoRows) {
  const RowIndex index = index_of({}, 0);
  torch::Tensor x = torch::zeros({0, 3}, torch::kFloat64).set_requires_grad(true);
  const torch::Tensor y =
      combine_rows(gather_rows(x, index), torch::zeros({0}, torch::kFloat64), index);
  EXPECT_EQ(y.sizes(), (Ids{0, 3}));
  y.sum().backward();
  EXPECT_EQ(x.grad().sizes(), (Ids{0, 3}));
  const RowIndex only_padding = index_of({-1, -1}, 2);
  const torch::Tensor zero = combine_rows(torch::full({2, 3}, NAN), torch::ones({2}), only_padding);
  EXPECT_TRUE(torch::equal(zero, torch::zeros({2, 3})));
}

}  // namespace
}  // namespace shoal
