#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "models/backbones/sparse_mlp.h"

namespace shoal {

/// MLP-Mixer, an image backbone without its classifier: a SparseMlp whose blocks are all dense,
/// without MoE layers. Source: Tolstikhin et al. 2021. Defaults are Mixer-B/16's.
class Mixer : public SparseMlp {
 public:
  struct Options {
    int64_t patch = 16;
    int64_t width = 768;
    int64_t depth = 12;
    std::optional<int64_t> token_hidden, channel_hidden;
    Gelu gelu = Gelu::kErf;

    static constexpr auto fields() {
      return std::tuple{
          field("patch", &Options::patch, "side of a patch", in_range(1, kMostWidth),
                unit("pixels")),
          field("width", &Options::width, "hidden size C", in_range(1, kMostWidth)),
          field("depth", &Options::depth, "number of blocks", in_range(0, kMostBlocks)),
          field("token_hidden", &Options::token_hidden, "MLP_S dim D_S; auto: half the width",
                in_range(1, kMostWidth), unset_word("auto")),
          field("channel_hidden", &Options::channel_hidden,
                "MLP_C dim D_C; auto: 4 times the width", in_range(1, kMostWidth),
                unset_word("auto")),
          field("gelu", &Options::gelu, "exact (timm) or tanh approximation (flax)")};
    }
    void validate(Problems& problems) const;
    int64_t token_hidden_width() const { return token_hidden.value_or(half_width(width)); }
    int64_t channel_hidden_width() const { return channel_hidden.value_or(4 * width); }
    /// Replaces `auto` widths by numbers, so that equal recipes compare equal.
    void resolve() {
      token_hidden = token_hidden_width();
      channel_hidden = channel_hidden_width();
    }
  };

  /// What `shoal new` writes into a starter recipe, with {patch} filled in. kNone: the model has no
  /// experts; a user who asks for some gets an error with the hint `why`.
  static constexpr Sketch kSketch{
      .experts = Sketch::Experts::kNone,
      .why = "sparse_mlp is a Mixer with experts",
      .task = "classify",
      .lines =
          "  patch: {patch}                       # side of a patch, pixels\n"
          "  width: 128\n"
          "  depth: 6\n"
          "  token_hidden: 64               # of MLPs over tokens, half the width\n"
          "  channel_hidden: 512            # of MLPs over channels, 4 times the width\n"};

  Mixer(const Options& options, const Context& context)
      : SparseMlp({.patch = options.patch,
                   .width = options.width,
                   .dense_blocks = options.depth,
                   .token_hidden = options.token_hidden,
                   .channel_hidden = options.channel_hidden,
                   .sparse_blocks = 0,
                   .sparse = {},
                   .gelu = options.gelu},
                  context, "mixer") {}
};

}  // namespace shoal
