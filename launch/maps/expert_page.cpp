#include "launch/maps/expert_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "launch/pages/page.h"

// N patches of an image
namespace shoal {
namespace {

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

constexpr const char* kExpertStyle =
    R"(.legend { list-style: none; margin: 0 0 12px; padding: 0; display: flex; flex-wrap: wrap;
  gap: 4px 18px; font-variant-numeric: tabular-nums; }
.chip { display: inline-block; width: 14px; height: 14px; margin-right: 6px; border-radius: 3px;
  border: 1px solid var(--line); vertical-align: -2px; forced-color-adjust: none; }
.maps { display: flex; flex-wrap: wrap; gap: 12px 20px; margin-bottom: 16px; }
figure { margin: 0; }
figure img { width: 144px; image-rendering: pixelated; vertical-align: top; }
figure img + img { margin-left: 4px; }
figcaption { font-size: 13px; }
)";

constexpr const char* kExpertText = R"(
<p>Left the image without noise, right the same in grey, each patch in the colour of the unit that
its token was routed to first. The tables show what the patches of each unit look like, over the first {}
images of the validation split (the first {} are drawn): the mean over the unit's patches of
brightness, contrast (standard deviation within the patch), edges (mean gradient a pixel), all of
the mean of the channels in [0, 1], and of the vertical position (0 = top, 1 = bottom); in brackets
how far that is from the mean of all patches, in standard deviations of all patches.</p>
)";

std::string chip(const Rgb& colour) {
  return fmt::format("<span class=\"chip\" style=\"background:{}\"></span>", hex_colour(colour));
}

/// Calls `use` with name, colour chip and numbers of each unit, and of patches without a unit.
template <class Use>
void for_each_unit(const RegionTable& regions, const Use& use) {
  const auto num_units = static_cast<int64_t>(regions.units.size()) - 1;
  for (int64_t u = 0; u <= num_units; ++u) {
    const RegionTable::Unit& unit = regions.units[static_cast<size_t>(u)];
    if (u < num_units) {
      use(fmt::format("{}unit {}", chip(unit_colour(u)), u), unit);
    } else if (unit.patches > 0) {
      use(chip({128, 128, 128}) + "no unit", unit);
    }
  }
}

std::string legend_of(const RegionTable& regions) {
  std::string html = "<ul class=\"legend\" role=\"list\">\n";
  for_each_unit(regions, [&](const std::string& name, const RegionTable::Unit& unit) {
    html += fmt::format("<li>{}: {:.1f} %</li>\n", name, 100 * regions.share(unit));
  });
  return html + "</ul>\n";
}

std::string region_rows(const RegionTable& regions) {
  std::vector<std::string> cells{"100.0 %"};
  for (const double mean : regions.mean) cells.push_back(fmt::format("{:.3f}", mean));
  std::string rows = page_row("all patches", cells);
  for_each_unit(regions, [&](const std::string& name, const RegionTable::Unit& unit) {
    cells = {fmt::format("{:.1f} %", 100 * regions.share(unit))};
    for (size_t i = 0; i < unit.mean.size(); ++i) {
      cells.push_back(unit.patches == 0
                          ? "-"
                          : fmt::format("{:.3f} ({:+.2f})", unit.mean[i], unit.difference[i]));
    }
    rows += page_row(name, cells);
  });
  return rows;
}

}  // namespace

Rgb unit_colour(int64_t unit) {
  if (unit < static_cast<int64_t>(kUnitColours.size())) {
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

void write_expert_page(FileSystem& files, const std::string& folder, const std::string& title,
                       const ExpertMaps& maps) {
  std::string html = page_head(title, kExpertStyle) +
                     fmt::format(kExpertText, maps.measured_images, maps.images.size());
  std::vector<std::string> image;
  for (size_t i = 0; i < maps.images.size(); ++i) {
    image.push_back(page_picture(files, folder, fmt::format("image-{:03}.png", i), maps.images[i]));
  }
  for (const ExpertMap& layer : maps.layers) {
    html += fmt::format("<h2>{}</h2>\n<p>{} x {} patches</p>\n{}<div class=\"maps\">\n",
                        xml_text(layer.layer), layer.rows, layer.columns, legend_of(layer.regions));
    for (size_t i = 0; i < maps.images.size(); ++i) {
      const std::string label = maps.labels[i].empty() ? "" : ", " + maps.labels[i];
      html +=
          fmt::format("<figure>{}{}<figcaption>image {}{}</figcaption></figure>\n", image[i],
                      page_picture(files, folder, fmt::format("image-{:03}.{}.png", i, layer.layer),
                                   tinted(maps.images[i], layer, layer.unit_N[i])),
                      i, xml_text(label));
    }
    html += "</div>\n";
    std::vector<std::string> columns{"routed to first", "share"};
    columns.insert(columns.end(), kRegionFeatures.begin(), kRegionFeatures.end());
    html += page_table("Regions of " + layer.layer, columns, region_rows(layer.regions));
  }
  replace_file(files, folder + "/index.html", html + kPageEnd);
}

}  // namespace shoal
