#include "launch/maps/expert_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

// N patches of an image
namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

// Colours that the colour-blind can tell apart (Okabe and Ito), with violet in place of black.
constexpr std::array<Rgb, 8> kUnitColours{{{230, 159, 0},
                                           {86, 180, 233},
                                           {0, 158, 115},
                                           {213, 94, 0},
                                           {0, 114, 178},
                                           {240, 228, 66},
                                           {204, 121, 167},
                                           {126, 87, 194}}};
constexpr double kTint = 0.6;  ///< share of the colour

Rgb mix(const Rgb& a, const Rgb& b, double share_of_b) {
  Rgb mixed;
  for (size_t i = 0; i < mixed.size(); ++i) {
    mixed[i] = static_cast<uint8_t>(
        std::lround(std::lerp(static_cast<double>(a[i]), static_cast<double>(b[i]), share_of_b)));
  }
  return mixed;
}

constexpr const char* kExpertText =
    "Left the image without noise, right the same in grey, each patch in the colour of the unit "
    "that its token was routed to first. The tables show what the patches of each unit look like, "
    "over the first {} images of the validation split (the first {} are drawn): the mean over the "
    "unit's patches of brightness, contrast (standard deviation within the patch), edges (mean "
    "gradient per pixel), all of the mean of the channels in [0, 1], and of the vertical position "
    "(0 = top, 1 = bottom); in brackets how far that is from the mean of all patches, in standard "
    "deviations over all patches; the row of all patches shows these after ±.";

constexpr int64_t kImageSide = 144;

/// The table, with the units' colours.
Json legend_rows(const RegionTable& regions) {
  Json rows = region_rows(regions);
  for (size_t u = 0; u < regions.units.size(); ++u) {
    Json& name = rows[u + 2][0];
    name = {{"text", name}, {"colour", hex_colour(unit_colour(regions.units[u].id))}};
  }
  return rows;
}

}  // namespace

Rgb unit_colour(int64_t unit) {
  if (unit < 0) return {128, 128, 128};
  if (unit < std::ssize(kUnitColours)) {
    return kUnitColours[static_cast<size_t>(unit)];
  }
  // Multiples of the golden angle give well separated hues for any number of units.
  const double turn = 0.61803398875 * static_cast<double>(unit);
  const double hue = 6 * (turn - std::floor(turn)), light = unit % 2 == 0 ? 0.85 : 0.6;
  Rgb colour;
  for (size_t i = 0; i < colour.size(); ++i) {
    const double place = std::fmod(hue + 4.0 - 2.0 * static_cast<double>(i) + 2.0, 6.0);
    const double value = std::clamp(std::abs(place - 3.0) - 1.0, 0.0, 1.0);
    colour[i] = static_cast<uint8_t>(std::lround(255 * light * (0.2 + 0.8 * value)));
  }
  return colour;
}

Picture tinted(const Picture& image, const ExpertMap& map, const std::vector<int64_t>& unit_N) {
  const int64_t side = std::min(image.height / map.rows, image.width / map.columns);
  Picture result{image.width, image.height, {}};
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x) {
      const Rgb& pixel = image.pixels[static_cast<size_t>(y * image.width + x)];
      const auto grey = static_cast<uint8_t>((pixel[0] + pixel[1] + pixel[2]) / 3);
      const int64_t row = y / side, column = x / side;
      const bool is_patch = row < map.rows && column < map.columns;
      const int64_t unit =
          is_patch ? unit_N.at(static_cast<size_t>(row * map.columns + column)) : -1;
      const Rgb plain{grey, grey, grey};
      result.pixels.push_back(unit < 0 ? plain : mix(plain, unit_colour(unit), kTint));
    }
  }
  return result;
}

TableRows region_rows(const RegionTable& regions) {
  TableRows rows{{"routed to first", "share"}, {"all patches", "100.0 %"}};
  for (size_t i = 0; i < kRegionFeatures.size(); ++i) {
    rows[0].emplace_back(kRegionFeatures[i]);
    rows[1].push_back(fmt::format("{:.3f} ±{:.3f}", regions.mean[i], regions.deviation[i]));
  }
  for (const RegionTable::Unit& unit : regions.units) {
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back(unit.id < 0 ? "no unit" : fmt::format("unit {}", unit.id));
    row.push_back(fmt::format("{:.1f} %", 100 * regions.share(unit)));
    for (size_t i = 0; i < unit.mean.size(); ++i) {
      row.push_back(unit.patches == 0
                        ? "-"
                        : fmt::format("{:.3f} ({:+.2f})", unit.mean[i], unit.difference[i]));
    }
  }
  return rows;
}

void write_expert_page(FileSystem& files, const std::string& folder, const std::string& title,
                       const ExpertMaps& maps) {
  Page page(title);
  page.begin_section("meaning", "");
  page.add({{"paragraph", fmt::format(kExpertText, maps.measured_images, maps.images.size())}});
  std::vector<Json> inputs;
  for (size_t i = 0; i < maps.images.size(); ++i) {
    inputs.push_back(page_image(files, folder, fmt::format("image-{:03}.png", i), maps.images[i]));
  }
  for (const ExpertMap& layer : maps.layers) {
    page.begin_section(layer.layer, layer.layer);
    page.add({{"paragraph", fmt::format("{} x {} patches", layer.rows, layer.columns)}});
    page.add({{"table",
               {{"caption", "Regions of " + layer.layer}, {"rows", legend_rows(layer.regions)}}}});
    Json pictures = Json::array();
    for (size_t i = 0; i < maps.images.size(); ++i) {
      Json images = Json::array(
          {inputs[i], page_image(files, folder, fmt::format("image-{:03}.{}.png", i, layer.layer),
                                 tinted(maps.images[i], layer, layer.unit_N[i]))});
      for (Json& image : images) image["width"] = kImageSide;
      const std::string label = maps.labels[i].empty() ? "" : ", " + maps.labels[i];
      pictures.push_back({{"images", images}, {"caption", fmt::format("image {}{}", i, label)}});
    }
    page.add({{"pictures", pictures}});
  }
  replace_file(files, folder + "/index.html", page.html());
}

}  // namespace shoal
