#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/data/data_shape.h"
#include "runtime/module/linear_extras.h"
#include "runtime/module/module.h"
#include "runtime/module/weight_form.h"

// B images  S patches  C width
namespace shoal {

/// Number of patches in an image, S. Throws ConfigError unless `patch` divides both sides.
int64_t num_patches(const ImageShape& image, int64_t patch);

/// Patch embedding: a patch x patch convolution with stride patch.
///
/// Parameters: weight [C, channels * patch * patch], the flattened convolution kernel [C, channels,
/// patch, patch], and bias [C].
class PatchEmbedImpl : public ModuleBase,
                       public HasWeightForms,
                       public HasLinearBranch,
                       public HasLinearProduct {
 public:
  PatchEmbedImpl(int64_t channels, int64_t patch, int64_t width,
                 const torch::TensorOptions& options);
  struct Sizes {
    int64_t channels, patch, width;
  };
  /// Draws weight and bias by `init`.
  PatchEmbedImpl(const Sizes& sizes, const torch::TensorOptions& options, const Init& init);
  /// [B, channels, H, W] -> [B, S, C], patches row by row. TORCH_CHECK unless patch divides H, W.
  torch::Tensor forward(const torch::Tensor& image_BCHW) const;

  bool set_form(const torch::Tensor& parameter, std::shared_ptr<const WeightForm> form) override;
  std::vector<torch::Tensor> form_leaves() const override { return extras_.form_leaves(); }
  bool set_branch(const torch::Tensor& parameter, const std::string& name,
                  std::shared_ptr<LinearBranch> branch) override;
  bool set_product(const torch::Tensor& weight,
                   std::shared_ptr<const LinearProduct> product) override;

  torch::Tensor weight, bias;

 private:
  LinearExtras extras_;
  int64_t channels_, patch_;
};
TORCH_MODULE(PatchEmbed);

}  // namespace shoal
