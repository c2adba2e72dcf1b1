#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/pages/image_regions.h"
#include "launch/pages/page.h"

// N patches of an image
namespace shoal {

/// The first expert that each patch of the images is routed to in one MoE layer.
struct ExpertMap {
  std::string layer;
  int64_t rows = 0, columns = 0;             ///< grid of patches in an image
  std::vector<std::vector<int64_t>> unit_N;  ///< [drawn image][patch]: expert id; -1: not routed
  /// Mean brightness, contrast, edges and vertical position of each expert's patches over all
  /// measured images, from a RegionCounter (image_regions.h).
  RegionTable regions;
};

/// Contents of the page that shows what experts specialise in.
struct ExpertMaps {
  std::vector<Picture> images;      ///< the drawn images
  std::vector<std::string> labels;  ///< labels of the drawn images; empty without labels
  int64_t measured_images = 0;      ///< number of images behind `regions`, drawn or not
  std::vector<ExpertMap> layers;
};

/// Colour of the expert with this id, clearly different from those of its neighbours; grey for -1.
Rgb unit_colour(int64_t unit);

/// The image in grey, each patch tinted with its expert's colour; unrouted patches stay grey.
Picture tinted(const Picture& image, const ExpertMap& map, const std::vector<int64_t>& unit_N);

/// Table of the features, with a head: a row for all patches with deviations, one for each expert
/// with differences from all patches, one for patches not routed, if there are some.
TableRows region_rows(const RegionTable& regions);

/// Writes `index.html` into an existing folder, with a PNG for each image and map. The page shows
/// these with a legend, the experts' shares of patches, and `regions`. Throws StorageError.
void write_expert_page(FileSystem& files, const std::string& folder, const std::string& title,
                       const ExpertMaps& maps);

}  // namespace shoal
