#include "models/vision/patch_embed.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/module/linear.h"

namespace shoal {

int64_t num_patches(const ImageShape& image, int64_t patch) {
  if (image.height % patch != 0 || image.width % patch != 0) {
    throw ConfigError(fmt::format("model.patch: {} does not divide images of {} x {} pixels", patch,
                                  image.height, image.width));
  }
  return (image.height / patch) * (image.width / patch);
}

torch::Tensor patches_of(const torch::Tensor& image_BCHW, int64_t patch) {
  const int64_t images = image_BCHW.size(0), channels = image_BCHW.size(1);
  const int64_t rows = image_BCHW.size(2) / patch, columns = image_BCHW.size(3) / patch;
  return image_BCHW.reshape({images, channels, rows, patch, columns, patch})
      .permute({0, 2, 4, 1, 3, 5})
      .reshape({images, rows * columns, channels * patch * patch});
}

torch::Tensor image_of(const torch::Tensor& patches, at::IntArrayRef shape_BCHW, int64_t patch) {
  return patches
      .view({shape_BCHW[0], shape_BCHW[2] / patch, shape_BCHW[3] / patch, shape_BCHW[1], patch,
             patch})
      .permute({0, 3, 1, 4, 2, 5})
      .reshape(shape_BCHW);
}

PatchEmbedImpl::PatchEmbedImpl(int64_t channels, int64_t patch, int64_t width,
                               const torch::TensorOptions& options, const std::optional<Init>& init)
    : channels_(channels), patch_(patch) {
  const int64_t pixels = channels * patch * patch;
  weight = add_parameter("weight", {width, pixels}, options,
                         init.value_or(Init::xavier_uniform(pixels, width)));
  bias = add_parameter("bias", {width}, options, init.value_or(bias_init()));
}

torch::Tensor PatchEmbedImpl::forward(const torch::Tensor& image_BCHW) const {
  TORCH_CHECK(image_BCHW.dim() == 4 && image_BCHW.size(1) == channels_ &&
                  image_BCHW.size(2) % patch_ == 0 && image_BCHW.size(3) % patch_ == 0,
              "patch embedding expects [B, ", channels_, ", H, W] with H and W multiples of ",
              patch_, ", got ", image_BCHW.sizes());
  return output_of(patches_of(image_BCHW, patch_));
}

}  // namespace shoal
