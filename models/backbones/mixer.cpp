#include "models/backbones/mixer.h"

#include "models/blocks/mixer_block.h"
#include "models/blocks/patch_grid.h"
#include "models/blocks/recompute.h"

// b images on this rank  S tokens  C width
namespace shoal {

Mixer::Mixer(const Options& options, const Context& context)
    : width_(options.width), features_(context.features), recomputes_(context.build.recomputes) {
  const torch::TensorOptions& tensor = context.build.tensor_options;
  const ImageShape image = require_images(context.data, "model.backbone", "mixer");
  const int64_t tokens = num_patches(image, options.patch);
  stem_ = register_module("stem", PatchEmbed(image.channels, options.patch, options.width, tensor));
  for (int64_t i = 0; i < options.depth; ++i) {
    const MixerBlockImpl::Sizes sizes{tokens, options.width, options.token_hidden,
                                      options.channel_hidden, options.gelu};
    blocks_->push_back(MixerBlock(sizes, tensor));
  }
  register_module("blocks", blocks_);
  norm_ = register_module("norm", LayerNorm(options.width, tensor));
}

ModelOutput Mixer::forward(const ModelInput& input, const StepContext&) {
  torch::Tensor x_bSC = stem_->forward(input.image_bCHW);
  for (const auto& block : *blocks_) {
    auto* mixer_block = block->as<MixerBlockImpl>();
    const auto run = [mixer_block](const torch::Tensor& x) {
      return BlockOutput{mixer_block->forward(x), {}, {}};
    };
    x_bSC = run_block(recomputes_, *block, x_bSC, run).y;
  }
  ModelOutput output;
  output.set_tokens(norm_->forward(x_bSC), features_);
  return output;
}

namespace {
const Registration<Backbone, Mixer> registered_mixer{"mixer", "MLP-Mixer"};
}

}  // namespace shoal
