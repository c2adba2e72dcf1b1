#include "launch/maps/activation_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "launch/pages/page.h"

namespace shoal {
namespace {

/// Picture of a map in which the weight `most` is brightest.
Picture embedded_picture(const ActivationMap& map, const LayerMaps& layer, double most) {
  Picture picture{layer.columns, layer.rows, {}};
  for (const double weight : map.weight) {
    picture.pixels.push_back(viridis(most > 0 ? weight / most : 0.0));
  }
  return picture;
}

/// Rows of the layers' tables, with their pictures in its folder.
struct LayerRows {
  FileSystem& files;
  const std::string& folder;

  std::string cell(const std::string& name, const LayerMaps& layer,
                   const std::optional<ActivationMap>& map, double most) {
    if (!map) return "none";
    return fmt::format("{}<br>H/ln N = {:.3f}",
                       page_picture(files, folder, name, embedded_picture(*map, layer, most)),
                       map->entropy);
  }

  /// Row of a layer's table for one image.
  std::string row(const LayerMaps& layer, const ActivationMaps& maps, size_t image) {
    double most = 0.0;
    for (const auto* kind : {&layer.memory, &layer.experts}) {
      if (!(*kind)[image]) continue;
      for (const double weight : (*kind)[image]->weight) most = std::max(most, weight);
    }
    const std::string name = fmt::format("image-{:03}", image);
    const std::string label = maps.labels[image].empty() ? "" : ", " + maps.labels[image];
    return page_row(
        fmt::format("<img src=\"{0}.png\" alt=\"\"><br>image {1}{2}", name, image, xml_text(label)),
        {cell(name + "." + layer.layer + ".memory.png", layer, layer.memory[image], most),
         cell(name + "." + layer.layer + ".experts.png", layer, layer.experts[image], most),
         viridis_scale("0", fmt::format("{:.2f}", most), " times an even share")});
  }
};

std::string entropy_text(const std::vector<std::optional<ActivationMap>>& maps) {
  const std::optional<double> entropy = mean_entropy(maps);
  return entropy ? fmt::format("{:.3f}", *entropy) : "none";
}

constexpr const char* kActivationStyle =
    R"(td, th, th:first-child { padding: 6px 12px; text-align: center; }
tbody th { font-weight: normal; }
td img, tbody th img { width: 160px; image-rendering: pixelated; }
td .colours, .colours img { width: 160px; margin: 0; }
)";

constexpr const char* kActivationText = R"(
<p>Which tokens the slots of memory units and of expert units are made of: the mean over units and
slots of their dispatch weights, in times an even share of the tokens. Both maps of a row have the
colours of its last column, from 0 (dark) to the highest weight (bright). H/ln N is the mean entropy of a slot's weights over the N
tokens: 1 = spread evenly over the image, 0 = one token.</p>
)";

}  // namespace

std::optional<double> mean_entropy(const std::vector<std::optional<ActivationMap>>& maps) {
  double sum = 0.0;
  for (const auto& map : maps) {
    if (!map) return std::nullopt;
    sum += map->entropy;
  }
  if (maps.empty()) return std::nullopt;
  return sum / static_cast<double>(maps.size());
}

void write_activation_page(FileSystem& files, const std::string& folder, const std::string& title,
                           const ActivationMaps& maps) {
  for (size_t image = 0; image < maps.images.size(); ++image) {
    page_picture(files, folder, fmt::format("image-{:03}.png", image), maps.images[image]);
  }
  std::string html = page_head(title, kActivationStyle) + kActivationText;
  for (const LayerMaps& layer : maps.layers) {
    std::string rows;
    for (size_t image = 0; image < maps.images.size(); ++image) {
      rows += LayerRows{files, folder}.row(layer, maps, image);
    }
    html +=
        fmt::format("<h2>{}</h2>\n<p>Mean H/ln N: memory units {}, expert units {}</p>\n",
                    xml_text(layer.layer), entropy_text(layer.memory),
                    entropy_text(layer.experts)) +
        page_table("Units of " + layer.layer,
                   {"input", "memory units", "expert units", "weight over an even share"}, rows);
  }
  replace_file(files, folder + "/index.html", html + kPageEnd);
}

}  // namespace shoal
