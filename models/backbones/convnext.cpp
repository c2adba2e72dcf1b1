#include "models/backbones/convnext.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "models/blocks/recompute.h"
#include "models/vision/convnext_block.h"
#include "runtime/base/error.h"

// b images on this rank  H height  W width  C channels
namespace shoal {
namespace {

constexpr size_t kMostStages = 16;

void check_image(const ImageShape& image, const ConvNext::Options& options) {
  const size_t halvings = options.depths.size() - 1;
  const int64_t unit = options.stem_patch << halvings;
  if (image.height % unit == 0 && image.width % unit == 0) return;
  throw ConfigError(fmt::format(
      "model.stem_patch: patches of {} pixels and {} halvings need sides that are multiples of "
      "{}, images are {} x {} pixels",
      options.stem_patch, halvings, unit, image.height, image.width));
}

}  // namespace

int64_t ConvNext::Options::depth() const {
  return std::accumulate(depths.begin(), depths.end(), int64_t{0});
}

void ConvNext::Options::validate(Problems& problems) const {
  if (widths.size() != depths.size()) {
    problems.add("widths", fmt::format("must name one width a stage: {} for {} depths",
                                       widths.size(), depths.size()));
  }
  if (depths.size() > kMostStages) {
    problems.add("depths", fmt::format("must name at most {} stages", kMostStages));
  } else if (static_cast<double>(depth()) > kMostBlocks) {
    problems.add("depths",
                 fmt::format("must name at most {} blocks in all, got {}", kMostBlocks, depth()));
  }
  const int64_t hidden = expansion * *std::max_element(widths.begin(), widths.end());
  if (static_cast<double>(hidden) > kMostWidth) {
    problems.add("expansion", fmt::format("makes a hidden width of {}, which must be at most {}",
                                          hidden, kMostWidth));
  }
  feed_forward.check(depth(), problems);
}

ConvNext::ConvNext(const Options& options, const Context& context)
    : stem_patch_(options.stem_patch),
      pixels_(require_images(context.data, "model.backbone", "convnext").pixels()),
      depths_(options.depths),
      widths_(options.widths),
      features_(context.features),
      recomputes_(context.build.recomputes) {
  const ImageShape image = require_images(context.data, "model.backbone", "convnext");
  check_image(image, options);
  const torch::TensorOptions& tensor = context.build.tensor_options;
  stem_ = register_module("stem",
                          PatchEmbed(image.channels, options.stem_patch, widths_.front(), tensor));
  stem_norm_ = register_module("stem_norm", LayerNorm(widths_.front(), tensor));
  for (size_t stage = 1; stage < widths_.size(); ++stage) {
    downsamples_->push_back(ConvNextDownsample(widths_[stage - 1], widths_[stage], tensor));
  }
  register_module("downsamples", downsamples_);
  add_blocks(options, context.build);
  register_module("blocks", blocks_);
  norm_ = register_module("norm", LayerNorm(widths_.back(), tensor));
}

void ConvNext::add_blocks(const Options& options, const ModelContext& build) {
  FeedForward::Place place;
  place.gelu = options.gelu;
  place.depth = options.depth();
  place.prefix = build.prefix;
  for (size_t stage = 0; stage < depths_.size(); ++stage) {
    place.width = widths_[stage];
    place.hidden = options.expansion * place.width;
    for (int64_t i = 0; i < depths_[stage]; ++i, ++place.block) {
      const double drop_path = drop_path_rate(options.drop_path, place.block, place.depth);
      blocks_->push_back(
          ConvNextBlock(ConvNextBlockImpl::Sizes{place, options.layer_scale, drop_path},
                        options.feed_forward, build));
    }
  }
}

ModelOutput ConvNext::forward(const ModelInput& input, const StepContext& step) {
  const torch::Tensor& image_bCHW = input.image_bCHW;
  ModelOutput output;
  const int64_t rows = image_bCHW.size(2) / stem_patch_, columns = image_bCHW.size(3) / stem_patch_;
  torch::Tensor x_bHWC = stem_norm_->forward(stem_->forward(image_bCHW))
                             .view({image_bCHW.size(0), rows, columns, widths_.front()});
  size_t index = 0;
  for (size_t stage = 0; stage < depths_.size(); ++stage) {
    if (stage > 0) {
      x_bHWC = downsamples_[stage - 1]->as<ConvNextDownsampleImpl>()->forward(x_bHWC);
    }
    for (int64_t i = 0; i < depths_[stage]; ++i) {
      auto* block = blocks_[index++]->as<ConvNextBlockImpl>();
      x_bHWC =
          output.take(run_block(recomputes_, *block, x_bHWC, [block, step](const torch::Tensor& x) {
            return block->forward(x, step);
          }));
    }
  }
  if (features_ == Features::kTokens) {
    output.token_bSD = norm_->forward(x_bHWC.flatten(1, 2));
  } else {
    output.pooled_bD = norm_->forward(mean_over(x_bHWC, {1, 2}));
  }
  return output;
}

void ConvNext::list_products(double /*rows*/, ProductList& list) const {
  auto positions = static_cast<double>(pixels_ / (stem_patch_ * stem_patch_));
  list.visit(*stem_, positions);
  list.visit(*stem_norm_, positions);
  size_t index = 0;
  for (size_t stage = 0; stage < depths_.size(); ++stage) {
    if (stage > 0) list.visit(*downsamples_->ptr(stage - 1), positions /= 4);
    for (int64_t i = 0; i < depths_[stage]; ++i) list.visit(*blocks_->ptr(index++), positions);
  }
  list.visit(*norm_, positions);
}

namespace {
const Registration<Backbone, ConvNext> registered_convnext{
    "convnext", "ConvNeXt, dense, with experts or with Nexus layers"};
}

}  // namespace shoal
