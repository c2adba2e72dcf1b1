#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/pages/image_regions.h"
#include "launch/pages/picture.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// The first expert of each patch in one MoE layer.
struct ExpertMap {
  std::string layer;
  int64_t rows = 0, columns = 0;             ///< numbers of patches
  std::vector<std::vector<int64_t>> unit_N;  ///< for each drawn image, by patch; -1: not routed
  RegionTable regions;                       ///< over all measured images
};

/// Contents of the page about experts.
struct ExpertMaps {
  std::vector<Picture> images;      ///< the drawn images
  std::vector<std::string> labels;  ///< labels of the drawn images; empty without labels
  int64_t measured_images = 0;
  std::vector<ExpertMap> layers;
};

/// Colour of a unit, clearly different from those of its neighbours.
Rgb unit_colour(int64_t unit);

/// The image in grey, each patch tinted with its unit's colour; patches without a unit stay grey.
Picture tinted(const Picture& image, const ExpertMap& map, const std::vector<int64_t>& unit_N);

/// Writes `index.html` into an existing folder, with a PNG for each image and map; the page shows
/// them side by side with a legend, the units' shares, and the features of the regions routed to
/// each unit. Throws StorageError.
void write_expert_page(FileSystem& files, const std::string& folder, const std::string& title,
                       const ExpertMaps& maps);

}  // namespace shoal
