#include <string>
#include <tuple>
#include <vector>

#include "models/hspmn/kernels/sparse_query_attention.h"
#include "runtime/device/operator.h"
#include "tests/support/gradient_check.h"
#include "tests/support/on_gpu.h"

// B sequences  S tokens  N query heads  M heads of keys and values  H head width
// R queries of all sequences
namespace shoal {
namespace {

using testing::some_numbers;

class SparseQueryAttentionGpu : public testing::OnGpu {
 protected:
  struct Inputs {
    torch::Tensor query_RNH, key_BSMH, value_BSMH;
    SparseQueries queries;
  };
  struct Results {
    torch::Tensor out, query, key, value;
  };
  struct Sizes {
    int64_t tokens, heads, key_heads, width;
  };

  static Inputs some_inputs(const Sizes& sizes, const std::vector<std::vector<int64_t>>& limits,
                            torch::Dtype dtype) {
    std::vector<int64_t> limit, offset{0};
    for (const std::vector<int64_t>& sequence : limits) {
      limit.insert(limit.end(), sequence.begin(), sequence.end());
      offset.push_back(static_cast<int64_t>(limit.size()));
    }
    const auto B = static_cast<int64_t>(limits.size());
    const std::vector<int64_t> rows{B, sizes.tokens, sizes.key_heads, sizes.width};
    return {some_numbers({offset.back(), sizes.heads, sizes.width}, 1, dtype) * 2,
            some_numbers(rows, 2, dtype) * 2,
            some_numbers(rows, 3, dtype),
            {torch::tensor(limit, torch::kInt64), offset}};
  }

  /// Keys and values are strided views of [B, S, M, H].
  static Results run(const Inputs& inputs) {
    const auto leaf = [](const torch::Tensor& x) { return x.detach().set_requires_grad(true); };
    const torch::Tensor query = leaf(inputs.query_RNH);
    const torch::Tensor key = leaf(inputs.key_BSMH), value = leaf(inputs.value_BSMH);
    const torch::Tensor out = sparse_query_attention(query, key.transpose(1, 2),
                                                     value.transpose(1, 2), inputs.queries, 0.3);
    const torch::Tensor grad = some_numbers(out.sizes(), 4, torch::kFloat64);
    out.backward(grad.to(out.scalar_type()).to(out.device()));
    return {out.detach(), query.grad(), key.grad(), value.grad()};
  }

  Inputs moved(const Inputs& x) const {
    return {on_gpu(x.query_RNH),
            on_gpu(x.key_BSMH),
            on_gpu(x.value_BSMH),
            {on_gpu(x.queries.limit_R), x.queries.offset_b1}};
  }

  /// The result of float64 from the same inputs, within roundings of their type.
  void expect_float64s(const Inputs& inputs, double roundings) const {
    const auto wide = [](const torch::Tensor& x) { return x.to(torch::kFloat64); };
    const Results expected = run(
        {wide(inputs.query_RNH), wide(inputs.key_BSMH), wide(inputs.value_BSMH), inputs.queries});
    const Results found = run(moved(inputs));
    expect_close(expected.out, found.out, roundings);
    expect_close(expected.query, found.query, roundings);
    expect_close(expected.key, found.key, roundings);
    expect_close(expected.value, found.value, roundings);
  }
};

const std::vector<std::vector<int64_t>> kRagged{
    {0, 5, 31, 32, 33, 69}, {}, {64}, {2, 2, 3}, {30, 31, 69}, {31, 63, 69}};

// Sums of up to 70 products of numbers up to 2, in another order than the CPU's.
TEST_F(SparseQueryAttentionGpu, IsTheCpusFloat64OnRaggedSequencesOfAnyGrouping) {
  for (const int64_t group : {1, 4, 8}) {
    for (const int64_t width : {5, 32, 128}) {
      const Sizes sizes{70, 2 * group, 2, width};
      expect_float64s(some_inputs(sizes, kRagged, torch::kFloat32), 256);
      expect_float64s(some_inputs(sizes, kRagged, torch::kFloat64), 256);
      // The output is rounded before the backward pass reads it.
      expect_float64s(some_inputs(sizes, kRagged, torch::kBFloat16), 4);
    }
  }
}

TEST_F(SparseQueryAttentionGpu, MergesPartsOfLongKeys) {
  for (const at::ScalarType type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    const Inputs inputs = some_inputs({1100, 4, 1, 16}, {{1, 300, 1099}, {255}, {}}, type);
    expect_float64s(inputs, type == torch::kBFloat16 ? 4 : 1024);
  }
}

TEST_F(SparseQueryAttentionGpu, WithoutQueriesGradientsAreZeros) {
  const Results found = run(moved(some_inputs({40, 4, 2, 8}, {{}, {}}, torch::kFloat32)));
  EXPECT_EQ(found.out.numel(), 0);
  expect_same(torch::zeros({2, 40, 2, 8}), found.key);
  expect_same(torch::zeros({2, 40, 2, 8}), found.value);
}

TEST_F(SparseQueryAttentionGpu, KeysAfterTheLastQueryGetZeros) {
  const Results found = run(moved(some_inputs({70, 4, 1, 8}, {{3, 40}}, torch::kFloat32)));
  for (const torch::Tensor& grad : {found.key, found.value}) {
    expect_same(torch::zeros({1, 29, 1, 8}), grad.narrow(1, 41, 29));
    EXPECT_TRUE(grad.narrow(1, 0, 41).cpu().ne(0).any(3).all().item<bool>());
  }
}

TEST_F(SparseQueryAttentionGpu, RefusesRowsThatItsKernelsCannotCount) {
  static const Operator<std::tuple<torch::Tensor, torch::Tensor>(
      at::TensorList, const torch::Tensor&, at::IntArrayRef, double)>
      op("shoal::sparse_query_attention_forward");
  const Inputs inputs = moved(some_inputs({40, 4, 2, 8}, {{3}}, torch::kFloat32));
  const std::vector<torch::Tensor> heads{inputs.query_RNH, inputs.key_BSMH.transpose(1, 2),
                                         inputs.value_BSMH.transpose(1, 2)};
  const std::vector<int64_t> offset{0, int64_t{1} << 40};
  EXPECT_THROW(op(heads, inputs.queries.limit_R, offset, 0.3), c10::Error);
}

TEST_F(SparseQueryAttentionGpu, WiderHeadsTakeThePortablePath) {
  expect_float64s(some_inputs({40, 4, 2, 160}, {{3, 20, 39}, {7}}, torch::kFloat32), 256);
}

}  // namespace
}  // namespace shoal
