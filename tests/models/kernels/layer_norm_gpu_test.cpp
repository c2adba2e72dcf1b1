#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "models/kernels/layer_norm.h"
#include "runtime/device/real_types.h"
#include "tests/support/gradient_check.h"
#include "tests/support/on_gpu.h"

// B images  S tokens  C width
namespace shoal {
namespace {

using testing::some_numbers;

struct NormCase {
  std::vector<int64_t> sizes;
  torch::Dtype dtype = torch::kFloat32;
  NormOptions options = {};
  bool transposed = false;
  bool uses_residual = true;
  double offset = 2.0;  ///< of x, whose deviation is about 0.6
};

/// Results of a norm and its residual, and gradients for some gradients of both.
struct NormResults {
  torch::Tensor y, x_grad, weight_grad, bias_grad;
};

/// Some weight or bias in the dtype of a norm's parameters.
torch::Tensor parameter(const NormCase& test, int64_t seed) {
  return some_numbers({test.sizes.back()}, seed, wide_dtype(test.dtype)) + 0.5;
}

/// LibTorch's operators in float64, on what a test's dtype holds.
NormedBranch plain_norm(const NormCase& test, const torch::Tensor& x, const torch::Tensor& weight,
                        const torch::Tensor& bias) {
  const bool is_centred = test.options.kind == NormKind::kLayer;
  const torch::Tensor centred = is_centred ? x - x.mean(-1, true) : x;
  torch::Tensor y = centred / (centred.pow(2).mean(-1, true) + test.options.eps).sqrt() * weight;
  if (bias.defined()) y = y + bias;
  return {test.transposed ? y.transpose(1, 2) : y, x};
}

class LayerNormGpu : public testing::OnGpu {
 protected:
  static torch::Tensor input(const NormCase& test) {
    return (some_numbers(test.sizes, 1) + test.offset).to(test.dtype);
  }

  template <class Norm>
  static NormResults results(const NormCase& test, const Norm& norm, const torch::Tensor& x,
                             const torch::Tensor& weight, const torch::Tensor& bias) {
    const NormedBranch branch = norm(x, weight, bias);
    const auto upstream = [&](const torch::Tensor& value, int64_t seed) {
      return some_numbers(value.sizes(), seed, test.dtype).to(value.options());
    };
    std::vector<torch::Tensor> outputs{branch.normed}, grads{upstream(branch.normed, 2)};
    if (test.uses_residual) {
      outputs.push_back(branch.residual);
      grads.push_back(upstream(branch.residual, 3));
    }
    torch::autograd::backward(outputs, grads);
    return {branch.normed.detach(), x.grad(), weight.grad(),
            bias.defined() ? bias.grad() : torch::Tensor()};
  }

  NormResults gpu_results(const NormCase& test) const {
    const auto leaf = [&](const torch::Tensor& value) {
      return on_gpu(value).set_requires_grad(true);
    };
    LayerNorm norm(test.sizes.back(), torch::TensorOptions(torch::kMeta), test.options);
    const bool has_bias = norm->bias.defined();
    norm->weight = leaf(parameter(test, 4));
    if (has_bias) norm->bias = leaf(parameter(test, 5));
    const auto run = [&](const torch::Tensor& x, const torch::Tensor&, const torch::Tensor&) {
      return test.transposed ? norm->branch_transposed(x) : norm->branch(x);
    };
    return results(test, run, leaf(input(test)), norm->weight, norm->bias);
  }

  /// `roundings` of the dtype that values have: a norm rounds once, after sums of a row.
  void expect_plain(const NormCase& test, double roundings = 64) const {
    const auto leaf = [](const torch::Tensor& value) {
      return value.to(torch::kFloat64).set_requires_grad(true);
    };
    const bool has_bias = test.options.bias && test.options.kind == NormKind::kLayer;
    const NormResults expected = results(
        test, [&](auto&... all) { return plain_norm(test, all...); }, leaf(input(test)),
        leaf(parameter(test, 4)), has_bias ? leaf(parameter(test, 5)) : torch::Tensor());
    const NormResults found = gpu_results(test);
    const double own = test.dtype == torch::kBFloat16 ? 1 : roundings;
    ASSERT_EQ(found.y.scalar_type(), test.dtype);
    ASSERT_TRUE(found.y.is_contiguous());
    expect_close(expected.y, found.y, own);
    expect_close(expected.x_grad, found.x_grad, own);
    ASSERT_EQ(found.weight_grad.scalar_type(), wide_dtype(test.dtype));
    expect_close(expected.weight_grad, found.weight_grad, roundings);
    ASSERT_EQ(found.bias_grad.defined(), has_bias);
    if (has_bias) expect_close(expected.bias_grad, found.bias_grad, roundings);
  }

  static constexpr at::ScalarType kTypes[] = {torch::kFloat32, torch::kFloat64, torch::kBFloat16};
};

TEST_F(LayerNormGpu, IsThePlainNorm) {
  for (const auto dtype : kTypes) {
    for (const int64_t width : {1, 7, 20, 33, 256, 1030}) {
      for (const int64_t rows : {0, 1, 37}) {
        SCOPED_TRACE(::testing::Message() << dtype << " " << rows << " rows of " << width);
        // One value deviates by nothing: it is divided by 1e-3.
        const double roundings = width == 1 ? 64e3 : 64;
        expect_plain({{rows, width}, dtype}, roundings);
        expect_plain({{rows, width}, dtype, {NormKind::kRms, 1e-5}}, roundings);
        expect_plain({{rows, width}, dtype, {NormKind::kLayer, 1e-5, /*bias=*/false}}, roundings);
      }
    }
  }
}

TEST_F(LayerNormGpu, TakesWideRows) {
  for (const auto dtype : kTypes) {
    expect_plain({{3, 8192}, dtype}, 256);
    expect_plain({{3, 8191}, dtype, {NormKind::kRms, 1e-5}}, 256);
  }
}

TEST_F(LayerNormGpu, MayBeTransposed) {
  for (const auto dtype : kTypes) {
    for (const int64_t images : {0, 1, 3}) {
      for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
        expect_plain({{images, 5, 20}, dtype, {kind, 1e-6}, /*transposed=*/true});
      }
    }
  }
}

TEST_F(LayerNormGpu, AResidualThatIsNotUsedAddsNoGradient) {
  for (const auto dtype : kTypes) {
    for (const bool transposed : {false, true}) {
      expect_plain({{2, 5, 33}, dtype, {}, transposed, /*uses_residual=*/false});
    }
  }
}

// The mean is 1700 standard deviations: the difference of two mean squares would have no digits.
TEST_F(LayerNormGpu, RowsFarFromZeroKeepTheirDigits) {
  NormCase test{{5, 100}};
  test.offset = 1000;
  expect_plain(test, 4 * 1700);
}

TEST_F(LayerNormGpu, RowsNeedNoAlignment) {
  constexpr int64_t kRows = 3, kWidth = 64;
  const torch::NoGradGuard no_grad;
  for (const auto dtype : kTypes) {
    LayerNorm norm(kWidth, torch::TensorOptions(gpu_).dtype(wide_dtype(dtype)));
    const torch::Tensor all = on_gpu(some_numbers({kRows * kWidth + 1}, 1, dtype));
    const torch::Tensor rows = all.narrow(0, 1, kRows * kWidth).view({kRows, kWidth});
    norm->weight.fill_(1.5);
    norm->bias.fill_(0.5);
    expect_close(norm->forward(rows.clone()).cpu(), norm->forward(rows), 4);
  }
}

TEST_F(LayerNormGpu, SumsHaveOneOrder) {
  const NormCase test{{200, 33}};
  const NormResults first = gpu_results(test);
  for (int run = 0; run < 3; ++run) {
    const NormResults again = gpu_results(test);
    expect_same(first.y.cpu(), again.y);
    expect_same(first.x_grad.cpu(), again.x_grad);
    expect_same(first.weight_grad.cpu(), again.weight_grad);
    expect_same(first.bias_grad.cpu(), again.bias_grad);
  }
}

}  // namespace
}  // namespace shoal
