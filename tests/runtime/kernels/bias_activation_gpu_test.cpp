#include <gtest/gtest.h>
#include <torch/types.h>

#include <limits>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/kernels/bias_activation.h"
#include "runtime/random/random.h"

namespace shoal {
namespace {

struct Results {
  torch::Tensor y, x_grad, bias_grad;
};

Results run(const torch::Tensor& x, const torch::Tensor& bias, Activation activation) {
  const torch::Tensor leaf = x.detach().clone().set_requires_grad(true);
  const torch::Tensor bias_leaf =
      bias.defined() ? bias.detach().clone().set_requires_grad(true) : torch::Tensor();
  const torch::Tensor y = bias_activation(leaf, bias_leaf, activation);
  y.sum().backward();
  return {y.detach(), leaf.grad(), bias.defined() ? bias_leaf.grad() : torch::Tensor()};
}

class BiasActivationGpu : public ::testing::Test {
 protected:
  torch::Tensor normal(at::IntArrayRef shape, at::ScalarType type, uint64_t step) const {
    const torch::Tensor values = torch::empty(shape, type);
    fill_normal(values, {.seed = 11, .purpose = Purpose::kTest, .layer = 3, .step = step});
    return values;
  }
  // The float32 kernels evaluate other formulas than the CPU's: some roundings of each apart.
  static void expect_close(const torch::Tensor& expected, const torch::Tensor& on_gpu) {
    ASSERT_TRUE(on_gpu.is_cuda());
    const bool is_double = expected.scalar_type() == torch::kFloat64;
    const double epsilon =
        is_double ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
    const torch::Tensor scale = expected.abs().clamp_min(1.0);
    EXPECT_LT(((on_gpu.cpu() - expected).abs() / scale).max().item<double>(), 64 * epsilon);
  }
  const at::Device gpu_ = resolve_device("cuda").device;
};

TEST_F(BiasActivationGpu, EqualsTheCpuForwardAndBackward) {
  for (const at::ScalarType type : {torch::kFloat32, torch::kFloat64}) {
    const torch::Tensor x = normal({7, 33, 5}, type, 1), bias = normal({5}, type, 2);
    for (const Activation activation : {Activation::kGelu, Activation::kGeluTanh, Activation::kRelu,
                                        Activation::kSilu, Activation::kSquaredRelu}) {
      const Results expected = run(x, bias, activation);
      const Results on_gpu = run(x.to(gpu_), bias.to(gpu_), activation);
      expect_close(expected.y, on_gpu.y);
      expect_close(expected.x_grad, on_gpu.x_grad);
      expect_close(expected.bias_grad, on_gpu.bias_grad);
      expect_close(run(x, {}, activation).y, run(x.to(gpu_), {}, activation).y);
    }
  }
}

// Computed in float32, with one rounding at the end.
TEST_F(BiasActivationGpu, RoundsBfloat16Once) {
  for (const int64_t columns : {5, 64}) {
    const torch::Tensor x = normal({33, columns}, torch::kBFloat16, 1);
    const torch::Tensor bias = normal({columns}, torch::kBFloat16, 2);
    const torch::Tensor expected =
        run(x.to(torch::kFloat32), bias.to(torch::kFloat32), Activation::kGelu).y;
    const torch::Tensor on_gpu = run(x.to(gpu_), bias.to(gpu_), Activation::kGelu).y;
    ASSERT_EQ(on_gpu.scalar_type(), torch::kBFloat16);
    const torch::Tensor error = (on_gpu.cpu().to(torch::kFloat32) - expected).abs();
    EXPECT_TRUE((error <= expected.abs() / 256 + 1e-6).all().item<bool>());
  }
}

TEST_F(BiasActivationGpu, TakesNoRows) {
  const torch::Tensor x = torch::empty({0, 6}, at::device(gpu_));
  EXPECT_EQ(run(x, torch::zeros({6}, at::device(gpu_)), Activation::kGelu).y.numel(), 0);
}

}  // namespace
}  // namespace shoal
