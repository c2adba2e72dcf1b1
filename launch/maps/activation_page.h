#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/pages/picture.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// Attention map of one image: how strongly the units of one kind attend to each token.
struct ActivationMap {
  /// [rows * columns] of the layer: dispatch weight averaged over units and slots, divided by that
  /// of uniform attention.
  std::vector<double> weight;
  /// Mean over units and slots of H(dispatch weights over the tokens) / ln(number of tokens).
  double entropy = 0.0;
};

/// Maps of a Nexus layer, for each image one per kind of unit in the layer.
struct LayerMaps {
  std::string layer;
  int64_t rows = 0, columns = 0;  ///< of tokens
  std::vector<std::optional<ActivationMap>> memory, experts;
};

struct ActivationMaps {
  std::vector<Picture> images;
  std::vector<std::string> labels;  ///< labels of the images; empty without labels
  std::vector<LayerMaps> layers;
};

/// Mean entropy over images; nullopt if the layer has no units of this kind.
std::optional<double> mean_entropy(const std::vector<std::optional<ActivationMap>>& maps);

/// Writes `index.html` into an existing folder, with a PNG for each image and map; the page shows
/// them side by side with their entropies. Throws StorageError.
void write_activation_page(FileSystem& files, const std::string& folder, const std::string& title,
                           const ActivationMaps& maps);

}  // namespace shoal
