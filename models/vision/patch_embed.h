#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

#include "runtime/data/data_shape.h"
#include "runtime/module/extended_weights.h"

// B images  S patches  C width
namespace shoal {

/// Number of patches in an image, S. Throws ConfigError unless `patch` (pixels) divides both sides.
int64_t num_patches(const ImageShape& image, int64_t patch);

/// Cuts images into patches, [B, channels, H, W] -> [B, S, channels * patch * patch], row by row.
torch::Tensor patches_of(const torch::Tensor& image_BCHW, int64_t patch);
/// Inverse of patches_of. `patches`: [B, S, P] or [B S, P], contiguous, where P = channels * patch
/// * patch; `shape_BCHW`: the images'.
torch::Tensor image_of(const torch::Tensor& patches, at::IntArrayRef shape_BCHW, int64_t patch);

/// Patch embedding: a patch x patch convolution with stride patch, computed as a linear layer.
/// ExtendedWeights is the base of linear layers, through which sparse training may extend them.
///
/// Parameters: weight [C, channels * patch * patch], the convolution's [C, channels, patch, patch]
/// flattened, by default Glorot-uniform, and bias [C], by default N(0, 1e-6).
class PatchEmbedImpl : public ExtendedWeights {
 public:
  /// `init`: of weight and bias, in place of the defaults.
  PatchEmbedImpl(int64_t channels, int64_t patch, int64_t width,
                 const torch::TensorOptions& options, const std::optional<Init>& init = {});
  /// [B, channels, H, W] -> [B, S, C], patches row by row. TORCH_CHECK unless patch divides H, W.
  torch::Tensor forward(const torch::Tensor& image_BCHW) const;

 private:
  int64_t channels_, patch_;
};
TORCH_MODULE(PatchEmbed);

}  // namespace shoal
