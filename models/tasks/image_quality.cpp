#include "models/tasks/image_quality.h"

#include <ATen/ops/ones.h>

#include <algorithm>
#include <cmath>

// B images  C channels  H height  W width
namespace shoal {
namespace {

constexpr double kLeastError = 1e-10;  // 100 dB

torch::Tensor mean_of_image(const torch::Tensor& x_BCHW) { return x_BCHW.mean({1, 2, 3}); }

/// [size - kSsimWindow + 1, size]: row i takes the mean of the values i to i + kSsimWindow - 1.
torch::Tensor window_matrix(int64_t size, const torch::TensorOptions& options) {
  return at::ones({size - kSsimWindow + 1, size}, options).triu().tril(kSsimWindow - 1) /
         kSsimWindow;
}

/// Equal to avg_pool2d with stride 1, in a third of its time on CPUs.
torch::Tensor mean_of_windows(const torch::Tensor& x_BCHW) {
  return window_matrix(x_BCHW.size(2), x_BCHW.options())
      .matmul(x_BCHW)
      .matmul(window_matrix(x_BCHW.size(3), x_BCHW.options()).t());
}

}  // namespace

double psnr_of(double error) { return -10.0 * std::log10(std::max(error, kLeastError)); }

torch::Tensor psnr(const torch::Tensor& image_BCHW, const torch::Tensor& clean_BCHW) {
  const torch::Tensor error =
      (image_BCHW.to(torch::kFloat64) - clean_BCHW.to(torch::kFloat64)).square();
  return mean_of_image(error).clamp_min(kLeastError).log10() * -10.0;
}

torch::Tensor ssim(const torch::Tensor& image_BCHW, const torch::Tensor& clean_BCHW) {
  TORCH_CHECK(image_BCHW.size(2) >= kSsimWindow && image_BCHW.size(3) >= kSsimWindow,
              "ssim: images are ", image_BCHW.sizes(), ", expected sides of at least ",
              kSsimWindow);
  constexpr double kC1 = 0.01 * 0.01, kC2 = 0.03 * 0.03;
  constexpr double kSample = kSsimWindow * kSsimWindow / (kSsimWindow * kSsimWindow - 1.0);
  const torch::Tensor x = image_BCHW.to(torch::kFloat64), y = clean_BCHW.to(torch::kFloat64);
  const torch::Tensor mean_x = mean_of_windows(x), mean_y = mean_of_windows(y);
  const auto covariance = [&](const torch::Tensor& a, const torch::Tensor& b,
                              const torch::Tensor& means) {
    return (mean_of_windows(a * b) - means) * kSample;
  };
  const torch::Tensor xx = mean_x * mean_x, yy = mean_y * mean_y, xy = mean_x * mean_y;
  const torch::Tensor spread = covariance(x, x, xx) + covariance(y, y, yy);
  return mean_of_image((2.0 * xy + kC1) * (2.0 * covariance(x, y, xy) + kC2) /
                       ((xx + yy + kC1) * (spread + kC2)));
}

}  // namespace shoal
