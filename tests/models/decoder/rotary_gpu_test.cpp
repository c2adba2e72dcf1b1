#include "models/decoder/causal_attention.h"
#include "models/decoder/rotary.h"
#include "tests/support/gradient_check.h"
#include "tests/support/on_gpu.h"

// B sequences  N heads  S tokens  H head width
namespace shoal {
namespace {

using testing::some_numbers;

constexpr double kRotaryBase = 100.0;

/// LibTorch's operators, in float64.
torch::Tensor plain_rotation(const torch::Tensor& x_BNSH, const Rotation& rotation) {
  const auto half = x_BNSH.to(torch::kFloat64).chunk(2, -1);
  const torch::Tensor cos = rotation.cos.to(torch::kFloat64);
  const torch::Tensor sin = rotation.sin.to(torch::kFloat64);
  return torch::cat({half[0] * cos - half[1] * sin, half[1] * cos + half[0] * sin}, -1);
}

class RotaryGpu : public testing::OnGpu {
 protected:
  Rotation on_gpu_too(const Rotation& rotation) const {
    return {on_gpu(rotation.cos), on_gpu(rotation.sin)};
  }

  /// The result, and the gradient for an upstream of its own or of ones. `heads_of` returns a view
  /// [B, N, S, H] of x.
  template <class HeadsOf>
  void expect_plain(const torch::Tensor& x, const Rotation& rotation,
                    const HeadsOf& heads_of) const {
    const torch::Tensor wide = x.to(torch::kFloat64).set_requires_grad(true);
    const torch::Tensor leaf = on_gpu(x).set_requires_grad(true);
    const torch::Tensor expected = plain_rotation(heads_of(wide), rotation);
    const torch::Tensor found = rotate(heads_of(leaf), on_gpu_too(rotation));
    ASSERT_EQ(found.scalar_type(), x.scalar_type());
    ASSERT_TRUE(found.is_contiguous());
    const double roundings = x.scalar_type() == torch::kBFloat16 ? 1 : 4;
    expect_close(expected, found, roundings);
    const torch::Tensor upstream = some_numbers(expected.sizes(), 3, x.scalar_type());
    expected.backward(upstream.to(torch::kFloat64), /*retain_graph=*/true);
    found.backward(on_gpu(upstream), /*retain_graph=*/true);
    expect_close(wide.grad(), leaf.grad(), roundings);
    wide.mutable_grad().zero_();
    leaf.mutable_grad().zero_();
    expected.sum().backward();
    found.sum().backward();  // strides of 0
    expect_close(wide.grad(), leaf.grad(), roundings);
  }

  static constexpr at::ScalarType kTypes[] = {torch::kFloat32, torch::kFloat64, torch::kBFloat16};
};

constexpr auto kAsIs = [](const torch::Tensor& x) { return x; };

TEST_F(RotaryGpu, IsThePlainRotation) {
  for (const auto dtype : kTypes) {
    for (const int64_t width : {2, 6, 8, 20, 64, 300}) {
      for (const int64_t sequences : {0, 1, 2}) {
        for (const int64_t tokens : {1, 5}) {
          SCOPED_TRACE(::testing::Message() << dtype << " " << sequences << " " << width);
          const torch::Tensor x = some_numbers({sequences, 3, tokens, width}, 1, dtype);
          expect_plain(x, rotation_at(torch::arange(tokens) + 2, width, kRotaryBase, dtype), kAsIs);
        }
      }
    }
  }
}

TEST_F(RotaryGpu, SequencesMayBeginAtPositionsOfTheirOwn) {
  const torch::Tensor begin = torch::tensor({int64_t{3}, int64_t{9}}).view({2, 1, 1});
  for (const auto dtype : kTypes) {
    expect_plain(some_numbers({2, 3, 4, 8}, 1, dtype),
                 rotation_at(begin + torch::arange(4), 8, kRotaryBase, dtype), kAsIs);
  }
}

TEST_F(RotaryGpu, HeadsMayBePartsOfOtherRows) {
  constexpr int64_t kTokens = 5;
  for (const auto dtype : kTypes) {
    for (const int64_t width : {8, 6}) {
      const Rotation rotation = rotation_at(torch::arange(kTokens), width, kRotaryBase, dtype);
      for (const int64_t part : {0, 1}) {
        expect_plain(some_numbers({2, kTokens, 3 * 2 * width}, 1, dtype), rotation,
                     [&](const torch::Tensor& x_BSC) {
                       return split_heads(x_BSC.chunk(3, -1)[part], width);
                     });
      }
      // Neighbours that are not side by side, and rows at odd places.
      expect_plain(some_numbers({2, 3, width, kTokens}, 1, dtype), rotation,
                   [](const torch::Tensor& x) { return x.transpose(2, 3); });
      expect_plain(some_numbers({2, 3, kTokens, width + 1}, 1, dtype), rotation,
                   [&](const torch::Tensor& x) { return x.narrow(3, 1, width); });
    }
  }
}

}  // namespace
}  // namespace shoal
