#include "models/backbones/sparse_mlp.h"

#include "models/blocks/recompute.h"
#include "runtime/options/automatic_values.h"
#include "runtime/options/automatic_width.h"

// b images on this rank  S tokens  C width
namespace shoal {

void MixerOptions::validate(Problems& problems) const {
  check_automatic_width("channel_hidden", channel_hidden, channel_hidden_width(), width, problems);
}

void SparseMlp::Options::validate(Problems& problems) const {
  if (sparse_blocks > 0 && sparse.rescale && !sparse.width && width % 2 != 0) {
    problems.add("sparse.width", "must be set where width is odd");
  }
  MixerOptions::validate(problems);
}

SparseMlp::SparseMlp(const Options& options, const Context& context, std::string_view name)
    : width_(options.width), features_(context.features), recomputes_(context.build.recomputes) {
  const torch::TensorOptions& tensor = context.build.tensor_options;
  const ImageShape image = require_images(context.data, "model.backbone", name);
  tokens_ = num_patches(image, options.patch);
  stem_ = register_module("stem", PatchEmbed(image.channels, options.patch, options.width, tensor));
  const int64_t num_blocks = options.dense_blocks + options.sparse_blocks;
  const int64_t first_sparse = options.positions == Positions::kFirst ? 0 : options.dense_blocks;
  for (int64_t i = 0; i < num_blocks; ++i) {
    if (i >= first_sparse && i < first_sparse + options.sparse_blocks) {
      const std::string path = context.build.prefix + "blocks." + std::to_string(i);
      blocks_->push_back(SparseBlock(options.sparse,
                                     SparseBlockImpl::Sizes{tokens_, options.width, options.gelu},
                                     path, context.build));
    } else {
      blocks_->push_back(
          MixerBlock(MixerBlockImpl::Sizes{tokens_, options.width, options.token_hidden_width(),
                                           options.channel_hidden_width(), options.gelu},
                     tensor));
    }
  }
  register_module("blocks", blocks_);
  norm_ = register_module("norm", LayerNorm(options.width, tensor));
}

ModelOutput SparseMlp::forward(const ModelInput& input, const StepContext& step) {
  ModelOutput output;
  torch::Tensor x_bSC = stem_->forward(input.image_bCHW);
  for (const auto& block : *blocks_) {
    auto* dense = block->as<MixerBlockImpl>();
    auto* sparse = block->as<SparseBlockImpl>();
    const auto run = [dense, sparse, step](const torch::Tensor& x) {
      return dense != nullptr ? BlockOutput{dense->forward(x), {}, {}} : sparse->forward(x, step);
    };
    x_bSC = output.take(run_block(recomputes_, *block, x_bSC, run));
  }
  output.set_tokens(norm_->forward(x_bSC), features_);
  return output;
}

const AutomaticValues<SparseMlp::Options> automatic_sparse_mlp_widths(ResolvedOn::kComparison);
const Registration<Backbone, SparseMlp> registered_sparse_mlp{
    "sparse_mlp", "all-MLP model with MoE layers for token and channel mixing"};
const AutomaticValues<Mixer::Options> automatic_mixer_widths(ResolvedOn::kComparison);
const Registration<Backbone, Mixer> registered_mixer{"mixer", "MLP-Mixer"};

}  // namespace shoal
