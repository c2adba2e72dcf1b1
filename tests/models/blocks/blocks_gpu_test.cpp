#include <functional>
#include <vector>

#include "models/blocks/mlp.h"
#include "models/decoder/dropout_attention.h"
#include "models/kernels/linear_cross_entropy.h"
#include "models/kernels/token_linear.h"
#include "models/kernels/transpose_add.h"
#include "runtime/data/batch.h"
#include "tests/models/kernels/layer_norm_of.h"
#include "tests/support/gradient_check.h"
#include "tests/support/on_gpu.h"
#include "tests/support/some_batch.h"

// B images  S tokens  P new tokens  C width  H hidden
namespace shoal {
namespace {

using testing::layer_norm;
using testing::layer_norm_transposed;
using testing::some_numbers;
using Tensors = std::vector<torch::Tensor>;
using Function = std::function<torch::Tensor(const Tensors&)>;

class BlocksGpu : public testing::OnGpu {
 protected:
  /// Values and gradients of a function of some numbers of these sizes.
  void expect_cpu(const std::vector<std::vector<int64_t>>& sizes, const Function& function) const {
    for (const at::ScalarType type : {torch::kFloat32, torch::kFloat64}) {
      Tensors inputs, others;
      for (size_t i = 0; i < sizes.size(); ++i) {
        const auto seed = static_cast<int64_t>(i) + 1;
        inputs.push_back(some_numbers(sizes[i], seed, type).set_requires_grad(true));
        others.push_back(on_gpu(inputs.back()));
      }
      const torch::Tensor expected = function(inputs), found = function(others);
      ASSERT_TRUE(found.is_contiguous());
      expect_close(expected, found, 128);
      const torch::Tensor upstream = some_numbers(expected.sizes(), 9, type);
      expected.backward(upstream);
      found.backward(on_gpu(upstream));
      for (size_t i = 0; i < inputs.size(); ++i) {
        expect_close(inputs[i].grad(), others[i].grad(), 512);
      }
    }
  }

  /// A norm and an MLP with these tensors: norm weight, norm bias, fc1 weight and bias, fc2 weight
  /// and bias.
  static torch::Tensor mlp_of(const Tensors& all, bool over_tokens) {
    const torch::TensorOptions meta = all[0].options().device(torch::kMeta).requires_grad(false);
    LayerNorm norm(all[0].size(2), meta);
    Mlp mlp(all[3].size(1), all[3].size(0), Gelu::kTanh, meta);
    norm->weight = all[1];
    norm->bias = all[2];
    mlp->fc1->weight = all[3];
    mlp->fc1->bias = all[4];
    mlp->fc2->weight = all[5];
    mlp->fc2->bias = all[6];
    const torch::Tensor normed = norm->forward(all[0]);
    return over_tokens ? mlp->forward_over_tokens(normed) : mlp->forward(normed);
  }
};

TEST_F(BlocksGpu, MlpsEqualTheCpu) {
  constexpr int64_t kTokens = 12, kWidth = 20, kHidden = 33;
  for (const int64_t images : {0, 1, 5}) {
    for (const bool over_tokens : {true, false}) {
      const int64_t mixed = over_tokens ? kTokens : kWidth;
      expect_cpu({{images, kTokens, kWidth},
                  {kWidth},
                  {kWidth},
                  {kHidden, mixed},
                  {kHidden},
                  {mixed, kHidden},
                  {mixed}},
                 [&](const Tensors& all) { return mlp_of(all, over_tokens); });
    }
  }
}

TEST_F(BlocksGpu, TokenLinearEqualsTheCpu) {
  for (const int64_t images : {0, 1, 5}) {
    expect_cpu({{images, 12, 20}, {7, 12}, {7}},
               [](const Tensors& all) { return token_linear(all[0], all[1], all[2]); });
  }
}

TEST_F(BlocksGpu, LayerNormEqualsTheCpu) {
  for (const int64_t images : {0, 1, 5}) {
    expect_cpu({{images, 12, 20}, {20}, {20}},
               [](const Tensors& all) { return layer_norm(all[0], all[1], all[2]); });
    expect_cpu({{images, 12, 20}, {20}, {20}},
               [](const Tensors& all) { return layer_norm_transposed(all[0], all[1], all[2]); });
  }
}

// 257 ones add up to 256 in bfloat16: parameters, and so their gradients, are float32 as on the
// CPU.
TEST_F(BlocksGpu, NormsOfBfloat16KeepTheirParametersInFloat32) {
  const torch::Tensor x = on_gpu(some_numbers({257, 1, 20}, 1, torch::kBFloat16));
  for (const bool transposed : {false, true}) {
    torch::Tensor weight = on_gpu(some_numbers({20}, 2, torch::kFloat32)).set_requires_grad(true);
    torch::Tensor bias = torch::full_like(weight, 1.0).set_requires_grad(true);
    const torch::Tensor y =
        transposed ? layer_norm_transposed(x, weight, bias) : layer_norm(x, weight, bias);
    EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
    y.sum().backward();
    expect_same(torch::full({20}, 257.0f), bias.grad());
    const torch::Tensor expected = layer_norm(x.cpu(), weight.detach().cpu(), bias.detach().cpu());
    expect_close(transposed ? expected.transpose(1, 2) : expected, y, 1);
  }
}

TEST_F(BlocksGpu, TransposeAddEqualsTheCpu) {
  for (const int64_t images : {0, 1, 5}) {
    expect_cpu({{images, 12, 20}, {images, 20, 12}},
               [](const Tensors& all) { return transpose_add(all[0], all[1]); });
  }
}

TEST_F(BlocksGpu, LinearCrossEntropyEqualsTheCpu) {
  constexpr int64_t kVocabulary = 13;
  for (const int64_t tokens : {0, 1, 12}) {
    expect_cpu({{tokens, 20}, {16, 20}}, [&](const Tensors& all) {
      const torch::Tensor label = torch::arange(tokens, all[0].options().dtype(torch::kInt64));
      return linear_cross_entropy(all[0], all[1], at::where(label == 3, kNoLabel, label),
                                  kVocabulary);
    });
  }
}

TEST_F(BlocksGpu, AttentionWithDropoutEqualsTheCpu) {
  const std::vector<int64_t> sizes{3, 2, 5, 4};
  expect_cpu({sizes, sizes, sizes}, [&](const Tensors& all) {
    StepContext step = testing::some_step(3, true);
    step.sample_b = step.sample_b.to(all[0].device());
    return attend_with_dropout(all[0], all[1], all[2], {0.5, Dropout(0.3, "attention"), step});
  });
}

}  // namespace
}  // namespace shoal
