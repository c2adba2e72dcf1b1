#include "models/tasks/image_quality.h"

#include <gtest/gtest.h>

#include <cmath>

// C channels  H height  W width
namespace shoal {
namespace {

/// Pattern of the specification: [1, 3, 32, 32].
torch::Tensor pattern(double row, double column, double channel) {
  const torch::Tensor c = torch::arange(3, torch::kFloat64).view({3, 1, 1}) * channel;
  const torch::Tensor h = torch::arange(32, torch::kFloat64).view({1, 32, 1}) * row;
  const torch::Tensor w = torch::arange(32, torch::kFloat64).view({1, 1, 32}) * column;
  return (c + h + w).unsqueeze(0);
}

TEST(ImageQuality, IsThatOfTheSpecification) {
  const torch::Tensor clean = 0.5 + 0.4 * pattern(0.3, 0.5, 1).sin();
  const torch::Tensor noisy = (clean + 0.1 * pattern(1.7, -0.9, 2).cos()).clamp(0, 1);
  EXPECT_NEAR(psnr(noisy, clean).item<double>(), 23.0100966, 5e-8);
  EXPECT_NEAR(ssim(noisy, clean).item<double>(), 0.9594004355, 5e-11);
}

TEST(ImageQuality, OfEvenImagesIsKnownByHand) {
  const torch::Tensor clean = torch::full({2, 3, 8, 9}, 0.5, torch::kFloat64);
  const torch::Tensor other = torch::full_like(clean, 0.6);
  EXPECT_NEAR(psnr(other, clean)[1].item<double>(), 20.0, 1e-6);
  EXPECT_NEAR(ssim(other, clean)[0].item<double>(), 0.9836092443, 1e-8);
  EXPECT_NEAR(psnr(clean, clean)[0].item<double>(), 100.0, 1e-12);  // at most
  EXPECT_EQ(psnr_of(0.01), 20.0);
  EXPECT_EQ(psnr_of(0.0), 100.0);
  EXPECT_NEAR(ssim(clean, clean)[0].item<double>(), 1.0, 1e-12);
  EXPECT_THROW(ssim(clean.narrow(2, 0, 6), clean.narrow(2, 0, 6)), c10::Error);
}

// Each image by itself, every channel and window.
TEST(ImageQuality, IsTheMeanOfWindowsAsScikitImageHasThem) {
  torch::Tensor x = (pattern(0.7, 1.3, 0.4).sin() + 1) / 2,
                y = (pattern(0.6, 1.1, 0.9).cos() + 1) / 2;
  x = x.narrow(2, 0, 9).narrow(3, 0, 8);
  y = y.narrow(2, 0, 9).narrow(3, 0, 8);
  double sum = 0;
  for (int64_t c = 0; c < 3; ++c) {
    for (int64_t top = 0; top < 3; ++top) {
      for (int64_t left = 0; left < 2; ++left) {
        const auto window = [&](const torch::Tensor& image) {
          return image[0][c].narrow(0, top, 7).narrow(1, left, 7).flatten();
        };
        const torch::Tensor a = window(x), b = window(y);
        const double ma = a.mean().item<double>(), mb = b.mean().item<double>();
        const double va = a.var().item<double>(), vb = b.var().item<double>();
        const double vab = ((a - ma) * (b - mb)).sum().item<double>() / 48;
        sum += (2 * ma * mb + 1e-4) * (2 * vab + 9e-4) /
               ((ma * ma + mb * mb + 1e-4) * (va + vb + 9e-4));
      }
    }
  }
  EXPECT_NEAR(ssim(x, y).item<double>(), sum / 18, 1e-12);
}

}  // namespace
}  // namespace shoal
