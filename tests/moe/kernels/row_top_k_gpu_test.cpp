#include "moe/kernels/row_top_k.h"

#include <cmath>
#include <limits>

#include "moe/kernels/logit_functions.h"
#include "tests/support/gradient_check.h"
#include "tests/support/on_gpu.h"

// T tokens  U units
namespace shoal {
namespace {

using testing::some_numbers;

/// Few different values, so that many are equal, and some that are no numbers.
torch::Tensor scores_with_ties(int64_t num_tokens, int64_t num_units, at::ScalarType type) {
  const torch::Tensor score = (some_numbers({num_tokens, num_units}, 1) * 3).round().to(type);
  const torch::Tensor place = torch::arange(score.numel()).view(score.sizes());
  return score.masked_fill(place.remainder(11) == 5, std::nan(""))
      .masked_fill(place.remainder(13) == 7, -std::numeric_limits<double>::infinity());
}

class TopKGpu : public testing::OnGpu {};

TEST_F(TopKGpu, ChoosesAsTheCpu) {
  for (const at::ScalarType type : {torch::kFloat32, torch::kFloat64}) {
    for (const int64_t num_units : {1, 2, 3, 8, 31, 33, 64, 100, 256, 1500}) {
      for (const int64_t k : {1, 2, 3, 4, 7, 8, 9, 30}) {
        if (k > num_units) continue;
        for (const int64_t num_tokens : {0, 1, 77}) {
          const torch::Tensor ties = scores_with_ties(num_tokens, num_units, type);
          expect_same(top_k(ties, k), top_k(on_gpu(ties), k));
          const torch::Tensor score = some_numbers({num_tokens, num_units}, 2, type);
          expect_same(top_k(score, k), top_k(on_gpu(score), k));
        }
      }
    }
  }
}

TEST_F(TopKGpu, MarksTheLowestAsTheCpu) {
  const std::vector<int64_t> offsets{0, 3000, 6000, 9000, 9000, 9001, 9500};
  for (const at::ScalarType type : {torch::kFloat32, torch::kFloat64}) {
    for (const torch::Tensor& score :
         {some_numbers({9500}, 1, type), scores_with_ties(9500, 1, type).flatten(),
          torch::zeros({9500}, type)}) {
      for (const std::vector<int64_t>& counts :
           {std::vector<int64_t>{300, 300, 300, 0, 1, 50}, {0, 3000, 1, 0, 0, 499}}) {
        expect_same(mark_lowest(score, offsets, counts),
                    mark_lowest(on_gpu(score), offsets, counts));
      }
    }
  }
}

class RowSoftmaxGpu : public testing::OnGpu {};

TEST_F(RowSoftmaxGpu, EqualsTheCpuForwardAndBackward) {
  for (const at::ScalarType type : {torch::kFloat32, torch::kFloat64}) {
    for (const int64_t num_units : {1, 2, 5, 32, 100, 256, 1000}) {
      for (const int64_t num_tokens : {0, 1, 99}) {
        const torch::Tensor logits =
            (some_numbers({num_tokens, num_units}, 1, type) * 5).set_requires_grad(true);
        const torch::Tensor upstream = some_numbers({num_tokens, num_units}, 2, type);
        const torch::Tensor other = on_gpu(logits);
        const torch::Tensor expected = row_softmax(logits), found = row_softmax(other);
        expected.backward(upstream);
        found.backward(on_gpu(upstream));
        expect_close(expected, found, 32);
        expect_close(logits.grad(), other.grad(), 64);
      }
    }
  }
}

TEST_F(RowSoftmaxGpu, LogitsWhoseDifferenceOverflowsStayNumbers) {
  const torch::Tensor wide = torch::tensor({{1.7e308, -1.7e308, 0.0}}, torch::kFloat64);
  for (const torch::Tensor& logits : {wide, (wide * 1.9e-270).to(torch::kFloat32)}) {
    expect_close(logits.softmax(1), row_softmax(on_gpu(logits)), 1);
  }
}

TEST_F(RowSoftmaxGpu, MakesRowsWithoutNumbersNan) {
  const double infinity = std::numeric_limits<double>::infinity();
  const torch::Tensor logits = torch::tensor(
      {{0.0, 1.0, 2.0}, {0.0, std::nan(""), 1.0}, {infinity, 0.0, 0.0}, {0.0, 0.0, -infinity}});
  const torch::Tensor is_nan = row_softmax(logits).isnan();
  expect_same(is_nan, row_softmax(on_gpu(logits)).isnan());
  EXPECT_EQ(is_nan.sum().item<int64_t>(), 9);
}

}  // namespace
}  // namespace shoal
