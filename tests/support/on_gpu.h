#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "runtime/device/device.h"

namespace shoal::testing {

/// A GPU for each test of a suite: without one they fail.
class OnGpu : public ::testing::Test {
 protected:
  torch::Tensor on_gpu(const torch::Tensor& tensor) const {
    return tensor.defined() ? tensor.detach().to(gpu_).set_requires_grad(tensor.requires_grad())
                            : tensor;
  }

  static void expect_same(const torch::Tensor& expected, const torch::Tensor& found) {
    ASSERT_TRUE(found.is_cuda());
    EXPECT_TRUE(torch::equal(expected, found.cpu()))
        << expected.scalar_type() << " " << expected.sizes() << " or " << found.sizes();
  }

  /// Some roundings of the type `found` has, relative to the largest value expected; where sums may
  /// cancel, to `addends`, the absolute ones of a sum together.
  static void expect_close(const torch::Tensor& expected, const torch::Tensor& found,
                           double roundings, double addends = 0) {
    ASSERT_TRUE(found.is_cuda());
    ASSERT_EQ(expected.sizes(), found.sizes());
    if (expected.numel() == 0) return;
    const torch::Tensor wide = expected.detach().to(torch::kFloat64);
    const torch::Tensor error = (found.detach().cpu().to(torch::kFloat64) - wide).abs();
    const double most = std::max({1e-30, wide.abs().max().item<double>(), addends});
    // Not `max() <`, which a NaN would pass.
    EXPECT_TRUE((error <= roundings * epsilon(found.scalar_type()) * most).all().item<bool>())
        << found.scalar_type() << " " << found.sizes() << ": off by " << error.max().item<double>()
        << " of " << most;
  }

  static double epsilon(at::ScalarType type) {
    if (type == torch::kFloat64) return std::numeric_limits<double>::epsilon();
    if (type == torch::kBFloat16) return 1.0 / 128;
    return std::numeric_limits<float>::epsilon();
  }

  const at::Device gpu_ = resolve_device("cuda").device;
};

}  // namespace shoal::testing
