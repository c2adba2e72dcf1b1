#pragma once

#include <torch/types.h>

#include <cstdint>

// B images  C channels  H height  W width
namespace shoal {

/// Similarity of images to clean ones, pixels in [0, 1]. Results: float64 [B], on the same device.

/// Side of SSIM's windows in pixels, and minimum side of an image.
inline constexpr int64_t kSsimWindow = 7;

/// PSNR in decibels of a mean squared error: 10 log10(1 / error), capped at 100, so that means over
/// images are finite even if one is restored exactly.
double psnr_of(double error);

/// Peak signal-to-noise ratio of each image, in decibels.
torch::Tensor psnr(const torch::Tensor& image_BCHW, const torch::Tensor& clean_BCHW);

/// Structural similarity with scikit-image's defaults: uniform 7 x 7 windows inside the image,
/// sample covariances, K1 = 0.01, K2 = 0.03, mean over windows and channels. TORCH_CHECK for sides
/// below 7. Source: Wang et al. 2004.
torch::Tensor ssim(const torch::Tensor& image_BCHW, const torch::Tensor& clean_BCHW);

}  // namespace shoal
