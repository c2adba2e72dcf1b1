#pragma once

#include <span>
#include <string_view>

namespace shoal {

/// Support of experts by a backbone.
enum class Experts { kNone, kMay, kMust };

/// Where a backbone's experts are, below `model`.
enum class ExpertsKey {
  kMoe,        ///< `moe`
  kSparse,     ///< `sparse.token_moe` and `sparse.channel_moe`
  kAttention,  ///< `attention.experts`
};

/// A backbone in a first recipe, with values for a first training.
struct BackboneSketch {
  std::string_view name;
  bool reads_images;
  Experts experts;
  ExpertsKey key;
  std::string_view why;    ///< of kNone and kMust, what to take instead
  std::string_view task;   ///< of images
  std::string_view lines;  ///< keys of `model`; {patch}: of an image of 8 x 8 patches, or 16 pixels
};

/// One of each registered backbone.
std::span<const BackboneSketch> backbone_sketches();

}  // namespace shoal
