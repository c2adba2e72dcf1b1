#include <vector>

#include "moe/kernels/permute_rows.h"
#include "tests/support/gradient_check.h"
#include "tests/support/on_gpu.h"

// T tokens  A rows  D width
namespace shoal {
namespace {

using testing::some_numbers;

/// Tokens of rows, one in seven is padding.
torch::Tensor some_tokens(int64_t num_rows, int64_t num_tokens) {
  const torch::Tensor token =
      ((some_numbers({num_rows}, 3) + 1) * 0.5 * static_cast<double>(num_tokens))
          .to(torch::kInt64)
          .clamp_max(num_tokens - 1);
  return token.masked_fill(torch::arange(num_rows).remainder(7) == 3, -1);
}

class PermuteRowsGpu : public testing::OnGpu {
 protected:
  struct Results {
    torch::Tensor gathered, combined, x_grad, rows_grad, weight_grad;
  };
  static Results run(const torch::Tensor& x_TD, const torch::Tensor& rows_AD,
                     const torch::Tensor& weight_A, const torch::Tensor& token_A) {
    const RowIndex index = make_row_index(token_A, x_TD.size(0));
    const auto leaf = [](const torch::Tensor& tensor) {
      return tensor.detach().clone().set_requires_grad(true);
    };
    const torch::Tensor x = leaf(x_TD), rows = leaf(rows_AD), weight = leaf(weight_A);
    Results results{gather_rows(x, index), combine_rows(rows, weight, index), {}, {}, {}};
    results.gathered.backward(rows_AD);
    results.combined.backward(x_TD);
    results.x_grad = x.grad();
    results.rows_grad = rows.grad();
    results.weight_grad = weight.grad();
    return results;
  }
};

TEST_F(PermuteRowsGpu, ListsTheSameRowsInTheSameOrder) {
  for (const auto& [num_rows, num_tokens] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {0, 5}, {1, 1}, {8, 3}, {5000, 1300}}) {
    const torch::Tensor token_A =
        num_tokens == 0 ? torch::empty({0}, torch::kInt64) : some_tokens(num_rows, num_tokens);
    const RowIndex expected = make_row_index(token_A, num_tokens);
    const RowIndex found = make_row_index(on_gpu(token_A), num_tokens);
    expect_same(expected.first_T1, found.first_T1);
    expect_same(expected.row_A, found.row_A.narrow(0, 0, expected.row_A.size(0)));
  }
}

// Sums are taken in the order of the CPU, without fused multiply-adds: the same bits. The dot
// products of the weights' gradients are added up in another order.
TEST_F(PermuteRowsGpu, GathersAndCombinesWithTheBitsOfTheCpu) {
  for (const at::ScalarType type : {torch::kFloat32, torch::kFloat64}) {
    for (const int64_t width : {1, 3, 4, 37, 128, 384, 1000}) {
      const torch::Tensor token_A = some_tokens(613, 211);
      const torch::Tensor x = some_numbers({211, width}, 1, type);
      const torch::Tensor rows = some_numbers({613, width}, 2, type);
      const torch::Tensor weight = some_numbers({613}, 4, type);
      const Results expected = run(x, rows, weight, token_A);
      const Results found = run(on_gpu(x), on_gpu(rows), on_gpu(weight), on_gpu(token_A));
      expect_same(expected.gathered, found.gathered);
      expect_same(expected.combined, found.combined);
      expect_same(expected.x_grad, found.x_grad);
      expect_same(expected.rows_grad, found.rows_grad);
      expect_close(expected.weight_grad, found.weight_grad, 32);
    }
  }
}

TEST_F(PermuteRowsGpu, SumsBfloat16InFloat32) {
  const torch::Tensor token_A = some_tokens(613, 211);
  for (const int64_t width : {3, 8, 392}) {
    const torch::Tensor x = some_numbers({211, width}, 1, torch::kBFloat16);
    const torch::Tensor rows = some_numbers({613, width}, 2, torch::kBFloat16);
    const torch::Tensor weight = some_numbers({613}, 4, torch::kFloat32);
    const Results expected = run(x.to(torch::kFloat32), rows.to(torch::kFloat32), weight, token_A);
    const Results found = run(on_gpu(x), on_gpu(rows), on_gpu(weight), on_gpu(token_A));
    EXPECT_EQ(found.combined.scalar_type(), torch::kBFloat16);
    EXPECT_EQ(found.weight_grad.scalar_type(), torch::kFloat32);
    // One rounding at the end.
    expect_same(expected.gathered.to(torch::kBFloat16), found.gathered);
    expect_same(expected.combined.to(torch::kBFloat16), found.combined);
    expect_same(expected.x_grad.to(torch::kBFloat16), found.x_grad);
    expect_same(expected.rows_grad.to(torch::kBFloat16), found.rows_grad);
    expect_close(expected.weight_grad, found.weight_grad, 32);
  }
}

TEST_F(PermuteRowsGpu, TakesRowsThatStartBetweenVectors) {
  const torch::Tensor whole = some_numbers({6 * 4 + 1}, 1, torch::kFloat32);
  const torch::Tensor token_A = torch::tensor({5L, 0L, -1L, 5L});
  const auto rows_of = [](const torch::Tensor& values) { return values.slice(0, 1).view({6, 4}); };
  expect_same(gather_rows(rows_of(whole), make_row_index(token_A, 6)),
              gather_rows(rows_of(on_gpu(whole)), make_row_index(on_gpu(token_A), 6)));
}

}  // namespace
}  // namespace shoal
