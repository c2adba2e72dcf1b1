#include "launch/report/picture.h"

#include <gtest/gtest.h>
#include <png.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

namespace shoal {
namespace {

/// The pixels that libpng reads from a PNG.
Picture decoded(const std::string& png) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_NE(png_image_begin_read_from_memory(&image, png.data(), png.size()), 0) << image.message;
  EXPECT_EQ(image.format & ~(PNG_FORMAT_FLAG_LINEAR | PNG_FORMAT_FLAG_COLORMAP), PNG_FORMAT_RGB);
  image.format = PNG_FORMAT_RGB;
  Picture picture{image.width, image.height, std::vector<Rgb>(size_t{image.width} * image.height)};
  EXPECT_NE(png_image_finish_read(&image, nullptr, picture.pixels.data(), 0, nullptr), 0)
      << image.message;
  return picture;
}

TEST(Png, HoldsThePixels) {
  Picture large{200, 150, {}};
  for (int64_t i = 0; i < 200 * 150; ++i) large.pixels.push_back(viridis(i % 97 / 97.0));
  for (const Picture& picture :
       {Picture{3, 2, {{255, 0, 1}, {2, 3, 4}, {5, 6, 7}, {8, 9, 10}, {11, 12, 13}, {0, 0, 0}}},
        Picture{1, 1, {{1, 2, 3}}}, large}) {
    const Picture found = decoded(png_bytes(picture));
    EXPECT_EQ(found.width, picture.width);
    EXPECT_EQ(found.height, picture.height);
    EXPECT_EQ(found.pixels, picture.pixels);
  }
}

TEST(Png, IsCompressedAndHasAPaletteWhereColoursAreFew) {
  Picture bands{400, 300, {}}, noise{400, 300, {}};
  for (int64_t i = 0; i < 400 * 300; ++i) {
    bands.pixels.push_back(viridis(i / 4000 / 30.0));
    const auto hash = static_cast<uint32_t>(i) * 2654435761u;
    noise.pixels.push_back({static_cast<uint8_t>(hash >> 24), static_cast<uint8_t>(hash >> 16), 0});
  }
  EXPECT_LT(png_bytes(bands).size(), 4000u);
  const std::string many_colours = png_bytes(noise);
  EXPECT_EQ(many_colours.find("PLTE"), std::string::npos);
  EXPECT_EQ(decoded(many_colours).pixels, noise.pixels);
  Picture palette{16, 16, {}};
  for (int i = 0; i < 256; ++i) palette.pixels.push_back({static_cast<uint8_t>(i), 7, 0});
  const std::string most_colours = png_bytes(palette);
  EXPECT_NE(most_colours.find("PLTE"), std::string::npos);
  EXPECT_EQ(decoded(most_colours).pixels, palette.pixels);
}

TEST(Png, RefusesAPictureWithoutPixels) { EXPECT_THROW(png_bytes({0, 5, {}}), std::logic_error); }

TEST(Picture, IsEnlargedPixelByPixel) {
  const Picture large = enlarge({2, 1, {{1, 1, 1}, {2, 2, 2}}}, 2);
  EXPECT_EQ(large.width, 4);
  EXPECT_EQ(large.height, 2);
  const Rgb one{1, 1, 1}, two{2, 2, 2};
  EXPECT_EQ(large.pixels, (std::vector<Rgb>{one, one, two, two, one, one, two, two}));
}

TEST(Picture, IsEnlargedByWholePixelsUpToASide) {
  EXPECT_EQ(enlarge_small({32, 20, std::vector<Rgb>(640)}).width, 128);
  EXPECT_EQ(enlarge_small({50, 50, std::vector<Rgb>(2500)}).width, 100);
  EXPECT_EQ(enlarge_small({1, 200, std::vector<Rgb>(200)}).height, 200);
}

TEST(Picture, AreTiledWithGaps) {
  const Rgb a{1, 1, 1}, b{2, 2, 2}, c{3, 3, 3}, white{255, 255, 255};
  const Picture sheet = tile({{1, 1, {a}}, {1, 2, {b, b}}, {1, 1, {c}}}, 2, 1);
  EXPECT_EQ(sheet.width, 3);
  EXPECT_EQ(sheet.height, 5);
  EXPECT_EQ(sheet.pixels, (std::vector<Rgb>{a, white, b, white, white, b, white, white, white, c,
                                            white, white, white, white, white}));
}

TEST(Viridis, GetsBrighterFromEndToEnd) {
  EXPECT_EQ(hex_colour(viridis(0)), "#440154");
  EXPECT_EQ(hex_colour(viridis(1)), "#fde725");
  EXPECT_EQ(viridis(-3), viridis(0));
  EXPECT_EQ(viridis(7), viridis(1));
  double before = -1.0;
  for (int i = 0; i <= 32; ++i) {
    const Rgb colour = viridis(i / 32.0);
    const auto light = [&](size_t channel) { return std::pow(colour[channel] / 255.0, 2.2); };
    const double lightness = 0.2126 * light(0) + 0.7152 * light(1) + 0.0722 * light(2);
    EXPECT_GT(lightness, before) << i;
    before = lightness;
  }
}

}  // namespace
}  // namespace shoal
