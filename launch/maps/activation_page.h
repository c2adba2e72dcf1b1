#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/pages/picture.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// How strongly the units of one kind (experts, or memory units: learned keys with values) of a
/// Nexus layer (paper: OneSparse) attend to each token of an image. A unit's slots are mixtures of
/// the tokens, whose shares are the dispatch weights.
struct ActivationMap {
  /// [rows * columns] tokens of the layer, row by row: mean dispatch weight over units and slots,
  /// divided by that of uniform attention.
  std::vector<double> weight;
  /// Evenness, 1 if uniform: mean over units and slots of H(weights over tokens) / ln(tokens).
  double entropy = 0.0;
};

/// Maps of one Nexus layer.
struct LayerMaps {
  std::string layer;
  int64_t rows = 0, columns = 0;                              ///< of tokens of an image
  std::vector<std::optional<ActivationMap>> memory, experts;  ///< by image; unset: no such units
};

/// Contents of the page on the attention of Nexus layers.
struct ActivationMaps {
  std::vector<Picture> images;
  std::vector<std::string> labels;  ///< labels of the images; empty without labels
  std::vector<LayerMaps> layers;    ///< maps of all images, by layer
};

/// Mean entropy over images; nullopt if the layer has no units of this kind.
std::optional<double> mean_entropy(const std::vector<std::optional<ActivationMap>>& maps);

/// Writes `index.html` into an existing folder, with a PNG for each image and map; the page shows
/// them side by side with their entropies. Throws StorageError.
void write_activation_page(FileSystem& files, const std::string& folder, const std::string& title,
                           const ActivationMaps& maps);

}  // namespace shoal
