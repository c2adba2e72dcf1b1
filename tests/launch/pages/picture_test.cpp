#include "launch/pages/picture.h"

#include <gtest/gtest.h>
#include <png.h>

#include <cmath>
#include <csetjmp>
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

/// The text that libpng reads from a PNG, all of whose checksums it checks.
std::string text_in(std::string_view png) {
  png_structp reader = png_create_read_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(reader);
  std::string text = "libpng refuses it";
  if (setjmp(png_jmpbuf(reader)) == 0) {
    png_set_crc_action(reader, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_read_fn(reader, &png, [](png_structp from, png_bytep to, size_t count) {
      auto* rest = static_cast<std::string_view*>(png_get_io_ptr(from));
      rest->copy(reinterpret_cast<char*>(to), count);
      rest->remove_prefix(count);
    });
    png_read_info(reader, info);
    png_textp texts = nullptr;
    int count = 0;
    png_get_text(reader, info, &texts, &count);
    text = count == 1 ? std::string(texts->key) + ": " + texts->text : "no text";
  }
  png_destroy_read_struct(&reader, &info, nullptr);
  return text;
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

TEST(Png, HoldsADescription) {
  const Picture picture{3, 1, {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}};
  const std::string png = png_bytes(picture, R"({"step": 7})");
  EXPECT_EQ(decoded(png).pixels, picture.pixels);
  EXPECT_EQ(text_in(png), R"(Description: {"step": 7})");
  const std::optional<PngHead> head = read_png_head(png);
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->width, 3);
  EXPECT_EQ(head->height, 1);
  EXPECT_EQ(head->description, R"({"step": 7})");
  EXPECT_EQ(read_png_head(png_bytes(picture)).value().description, "");
}

TEST(Png, IsKnownOnlyIfAllOfItIsThere) {
  const std::string png = png_bytes({1, 1, {{1, 2, 3}}}, "text");
  for (size_t size = 0; size < png.size(); ++size) {
    EXPECT_FALSE(read_png_head(png.substr(0, size)).has_value()) << size;
  }
  std::string endless = png;
  endless[33] = '\xff';  // the size of the second chunk
  EXPECT_FALSE(read_png_head(endless).has_value());
  EXPECT_FALSE(read_png_head("GIF" + png.substr(3)).has_value());
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

TEST(PictureOfATensor, RoundsValuesAndShowsOneChannelGrey) {
  const torch::Tensor colour =
      torch::tensor({0.0, 1.0, 0.5, 0.2, -1.0, 2.0}, torch::kFloat64).view({3, 1, 2});
  EXPECT_EQ(picture_of(colour).pixels, (std::vector<Rgb>{{0, 128, 0}, {255, 51, 255}}));
  const Picture grey = picture_of(torch::tensor({0.0f, 0.2f}).view({1, 2, 1}));
  EXPECT_EQ(grey.width, 1);
  EXPECT_EQ(grey.pixels, (std::vector<Rgb>{{0, 0, 0}, {51, 51, 51}}));
}

TEST(PictureOfATensor, ShowsWhatIsNoNumberBlack) {
  const torch::Tensor nan = torch::full({3, 1, 1}, std::nan(""), torch::kFloat64);
  EXPECT_EQ(picture_of(nan).pixels, (std::vector<Rgb>{{0, 0, 0}}));
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
