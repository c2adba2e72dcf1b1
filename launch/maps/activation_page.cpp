#include "launch/maps/activation_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "launch/pages/page.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kActivationText =
    "Which tokens the slots of memory units and of expert units are made of: the mean over units "
    "and slots of their dispatch weights, in times an even share of the tokens. Left the image, "
    "then the maps of memory units and of expert units, as far as there are some, both from 0 "
    "(dark) to the image's highest weight (bright). H/ln N is the mean entropy of a slot's weights "
    "over the N tokens: 1 = spread evenly over the image, 0 = one token.";

constexpr int64_t kMapSide = 160;

std::string entropy_text(const std::optional<double>& entropy) {
  return entropy ? fmt::format("{:.3f}", *entropy) : "none";
}

/// The maps of a page's image, written into its folder.
class MapWriter {
 public:
  MapWriter(FileSystem& files, const std::string& folder, const ActivationMaps& maps)
      : files_(files), folder_(folder), maps_(maps) {
    for (size_t image = 0; image < maps.images.size(); ++image) {
      inputs_.push_back(page_image(files, folder, name_of(image) + ".png", maps.images[image]));
    }
  }

  void add_layer(Page& page, const LayerMaps& layer) const {
    CaptionedTable table{"H/ln N of " + layer.layer,
                         {{"image", "memory units", "expert units", "highest weight"}}};
    Json pictures = Json::array();
    for (size_t image = 0; image < maps_.images.size(); ++image) {
      double most = 0.0;
      for (const auto* kind : {&layer.memory, &layer.experts}) {
        if (!(*kind)[image]) continue;
        most = std::max(most, std::ranges::max((*kind)[image]->weight));
      }
      const std::string label = maps_.labels[image].empty() ? "" : ", " + maps_.labels[image];
      const std::string shown = fmt::format("image {}{}", image, label);
      Json images = Json::array({inputs_[image]});
      for (const auto& [kind, name] :
           {std::pair{&layer.memory, "memory"}, {&layer.experts, "experts"}}) {
        if (!(*kind)[image]) continue;
        images.push_back(page_image(
            files_, folder_, fmt::format("{}.{}.{}.png", name_of(image), layer.layer, name),
            viridis_picture(layer.columns, layer.rows, (*kind)[image]->weight, most)));
      }
      for (Json& one : images) one["width"] = kMapSide;
      pictures.push_back({{"images", images}, {"caption", shown}});
      table.rows.push_back({shown, entropy_text(mean_entropy({layer.memory[image]})),
                            entropy_text(mean_entropy({layer.experts[image]})),
                            fmt::format("{:.2f}", most)});
    }
    table.rows.push_back({"mean", entropy_text(mean_entropy(layer.memory)),
                          entropy_text(mean_entropy(layer.experts)), ""});
    page.begin_section(layer.layer, layer.layer);
    page.add({{"pictures", pictures}});
    page.add_table(table);
  }

 private:
  static std::string name_of(size_t image) { return fmt::format("image-{:03}", image); }

  FileSystem& files_;
  const std::string& folder_;
  const ActivationMaps& maps_;
  std::vector<Json> inputs_;
};

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
  const MapWriter writer(files, folder, maps);
  Page page(title);
  page.begin_section("meaning", "");
  page.add({{"paragraph", kActivationText}});
  for (const LayerMaps& layer : maps.layers) writer.add_layer(page, layer);
  replace_file(files, folder + "/index.html", page.html());
}

}  // namespace shoal
