#include <fmt/format.h>
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <vector>

#include "models/backbone.h"
#include "models/blocks/feed_forward.h"
#include "models/blocks/recompute.h"
#include "models/kernels/layer_norm.h"
#include "models/vision/convnext_block.h"
#include "models/vision/patch_embed.h"
#include "runtime/base/error.h"
#include "runtime/base/size_limits.h"
#include "runtime/module/products.h"

// b images on this rank  H height  W width  C channels
namespace shoal {
namespace {

constexpr size_t kMostStages = 16;

/// ConvNeXt without its classifier: a stem, stages of blocks, a downsampling layer before each
/// stage but the first, mean pooling, norm. Experts or Nexus layers (experts and key-value memory
/// units behind one soft router; paper: OneSparse) may replace MLPs. Source: Liu et al. 2022.
/// Defaults are ConvNeXt-T's.
///
/// Block numbers run through all stages: `blocks.3` is the first block of ConvNeXt-T's second
/// stage. Activations are [b, H, W, C], so that MLPs and experts read contiguous rows. Stem,
/// downsampling layers and MLPs are Glorot-uniform with biases from N(0, 1e-6); the paper has a
/// truncated normal of deviation 0.02 and zero biases.
class ConvNext : public Backbone, public CountsProducts {
 public:
  struct Options {
    int64_t stem_patch = 4;
    std::vector<int64_t> depths{3, 3, 9, 3};
    std::vector<int64_t> widths{96, 192, 384, 768};
    int64_t expansion = 4;
    Gelu gelu = Gelu::kErf;
    double layer_scale = 1e-6;
    double drop_path = 0.0;
    FeedForwardOptions feed_forward;

    static constexpr auto fields() {
      return std::tuple{
          field("stem_patch", &Options::stem_patch, "side and stride of the stem's convolution",
                in_range(1, kMostWidth), unit("pixels")),
          field("depths", &Options::depths, "number of blocks of each stage",
                in_range(0, kMostBlocks), at_least_one()),
          field("widths", &Options::widths, "number of channels C in each stage",
                in_range(1, kMostWidth), at_least_one()),
          field("expansion", &Options::expansion, "hidden width of a dense MLP, as a multiple of C",
                in_range(1, kMostWidth)),
          field("gelu", &Options::gelu, "exact, or the tanh approximation"),
          field("layer_scale", &Options::layer_scale, "initial value of each block's gamma",
                at_least(0), keeps_evaluation()),
          field("drop_path", &Options::drop_path,
                "stochastic depth rate of the last block; increases linearly from 0",
                in_range(0, below(1)), keeps_evaluation()),
          inlined(&Options::feed_forward)};
    }
    void validate(Problems& problems) const {
      if (widths.size() != depths.size()) {
        problems.add("widths", fmt::format("must name one width a stage: {} for {} depths",
                                           widths.size(), depths.size()));
      }
      if (depths.size() > kMostStages) {
        problems.add("depths", fmt::format("must name at most {} stages", kMostStages));
      } else if (static_cast<double>(depth()) > kMostBlocks) {
        problems.add("depths", fmt::format("must name at most {} blocks in all, got {}",
                                           kMostBlocks, depth()));
      }
      const int64_t hidden = expansion * *std::ranges::max_element(widths);
      if (static_cast<double>(hidden) > kMostWidth) {
        problems.add("expansion",
                     fmt::format("makes a hidden width of {}, which must be at most {}", hidden,
                                 kMostWidth));
      }
      feed_forward.check(depth(), problems);
    }
    /// Number of blocks in all stages.
    int64_t depth() const { return std::accumulate(depths.begin(), depths.end(), int64_t{0}); }
  };

  static constexpr Sketch kSketch{
      .task = "classify",
      .lines =
          "  stem_patch: 2\n"
          "  depths: [2, 2, 4]              # blocks of each stage\n"
          "  widths: [32, 64, 128]          # channels of each stage\n"};  ///< for `shoal new`

  /// Throws ConfigError unless both image sides are multiples of stem_patch · 2^(stages - 1).
  ConvNext(const Options& options, const Context& context)
      : stem_patch_(options.stem_patch),
        depths_(options.depths),
        widths_(options.widths),
        features_(context.features),
        recomputes_(context.build.recomputes) {
    const ImageShape image = require_images(context.data, "model.backbone", "convnext");
    check_image(image, options);
    pixels_ = image.pixels();
    const torch::TensorOptions& tensor = context.build.tensor_options;
    stem_ = register_module(
        "stem", PatchEmbed(image.channels, options.stem_patch, widths_.front(), tensor));
    stem_norm_ = register_module("stem_norm", LayerNorm(widths_.front(), tensor));
    for (size_t stage = 1; stage < widths_.size(); ++stage) {
      downsamples_->push_back(ConvNextDownsample(widths_[stage - 1], widths_[stage], tensor));
    }
    register_module("downsamples", downsamples_);
    add_blocks(options, context.build);
    register_module("blocks", blocks_);
    norm_ = register_module("norm", LayerNorm(widths_.back(), tensor));
  }

  ModelOutput forward(const ModelInput& input, const StepContext& step) override {
    const torch::Tensor& image_bCHW = input.image_bCHW;
    ModelOutput output;
    const int64_t rows = image_bCHW.size(2) / stem_patch_,
                  columns = image_bCHW.size(3) / stem_patch_;
    torch::Tensor x_bHWC = stem_norm_->forward(stem_->forward(image_bCHW))
                               .view({image_bCHW.size(0), rows, columns, widths_.front()});
    size_t index = 0;
    for (size_t stage = 0; stage < depths_.size(); ++stage) {
      if (stage > 0) {
        x_bHWC = downsamples_[stage - 1]->as<ConvNextDownsampleImpl>()->forward(x_bHWC);
      }
      for (int64_t i = 0; i < depths_[stage]; ++i) {
        auto* block = blocks_[index++]->as<ConvNextBlockImpl>();
        x_bHWC = output.take(
            run_block(recomputes_, *block, x_bHWC,
                      [block, step](const torch::Tensor& x) { return block->forward(x, step); }));
      }
    }
    if (features_ == Features::kTokens) {
      output.token_bSD = norm_->forward(x_bHWC.flatten(1, 2));
    } else {
      output.pooled_bD = norm_->forward(mean_over(x_bHWC, {1, 2}));
    }
    return output;
  }
  int64_t feature_width() const override { return widths_.back(); }
  /// Lists the products of one sample, by which multiply-adds are counted. Ignores `rows`.
  void list_products(double /*rows*/, ProductList& list) const override {
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

 private:
  static void check_image(const ImageShape& image, const Options& options) {
    const size_t halvings = options.depths.size() - 1;
    const int64_t unit = options.stem_patch << halvings;
    if (image.height % unit == 0 && image.width % unit == 0) return;
    throw ConfigError(fmt::format(
        "model.stem_patch: patches of {} pixels and {} halvings need sides that are multiples of "
        "{}, images are {} x {} pixels",
        options.stem_patch, halvings, unit, image.height, image.width));
  }

  void add_blocks(const Options& options, const ModelContext& build) {
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

  int64_t stem_patch_;
  int64_t pixels_ = 0;  ///< of an image
  std::vector<int64_t> depths_, widths_;
  Features features_;
  bool recomputes_;
  PatchEmbed stem_{nullptr};
  LayerNorm stem_norm_{nullptr};
  torch::nn::ModuleList downsamples_;
  torch::nn::ModuleList blocks_;
  LayerNorm norm_{nullptr};
};

const Registration<Backbone, ConvNext> registered_convnext{
    "convnext", "ConvNeXt, dense, with experts or with Nexus layers"};

}  // namespace
}  // namespace shoal
