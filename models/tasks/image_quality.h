#pragma once

#include <torch/types.h>

// B images  C channels  H height  W width
namespace shoal {

/// How near images are to clean ones, values in [0, 1]; float64 [B], on their device.

/// Peak signal-to-noise ratio in decibels: 10 log10(1 / mean squared error); infinite of equal
/// images.
torch::Tensor psnr(const torch::Tensor& image_BCHW, const torch::Tensor& clean_BCHW);

/// Structural similarity as scikit-image computes it by default: even windows of 7 x 7 pixels that
/// lie inside the image, sample covariances, K1 = 0.01, K2 = 0.03; the mean over windows and
/// channels. TORCH_CHECK for sides below 7. Source: Wang et al. 2004.
torch::Tensor ssim(const torch::Tensor& image_BCHW, const torch::Tensor& clean_BCHW);

}  // namespace shoal
