#pragma once

#include <torch/types.h>

#include <cstdint>

// B images  C channels  H height  W width
namespace shoal {

/// Similarity of images to clean ones, values in [0, 1]; float64 [B], on the images' device.

/// Side of SSIM's windows, and smallest side of an image.
inline constexpr int64_t kSsimWindow = 7;

/// PSNR in decibels from a mean squared error of values in [0, 1]: 10 log10(1 / error), at most
/// 100, so that means over images stay finite even if one is restored exactly.
double psnr_of(double error);

/// Peak signal-to-noise ratio of each image, in decibels.
torch::Tensor psnr(const torch::Tensor& image_BCHW, const torch::Tensor& clean_BCHW);

/// Structural similarity with scikit-image's defaults: uniform windows of 7 x 7 pixels inside the
/// image, sample covariances, K1 = 0.01, K2 = 0.03; the mean over windows and channels. TORCH_CHECK
/// for sides below 7. Source: Wang et al. 2004.
torch::Tensor ssim(const torch::Tensor& image_BCHW, const torch::Tensor& clean_BCHW);

}  // namespace shoal
