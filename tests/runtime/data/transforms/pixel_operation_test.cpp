#include "tests/support/pixel_operation_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace shoal {
namespace {

/// The image of print_table in benchmarks/peers/pillow_operations.py.
EditedImage pattern(int64_t height, int64_t width) {
  EditedImage image{{3, height, width}, {}};
  for (int64_t c = 0; c < 3; ++c) {
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const int64_t value = 37 * y + 11 * x * x + 5 * y * x + 70 * c + 13 * c * x;
        image.pixel_CHW.push_back(static_cast<uint8_t>(value % 256));
      }
    }
  }
  return image;
}

std::vector<uint8_t> changed(PixelOperation operation, double argument, EditedImage image,
                             Interpolation interpolation = Interpolation::kBilinear) {
  apply(operation, argument, interpolation, image);
  return image.pixel_CHW;
}

struct PillowCase {
  PixelOperation operation;
  double argument;
  Interpolation interpolation;
  std::vector<uint8_t> expected;
};

/// Made by Pillow 13.0.0: `benchmarks/peers/pillow_operations.py --table`.
const std::vector<PillowCase> kPillowCases{
    {PixelOperation::kAutoContrast,
     0,
     Interpolation::kNearest,
     {0,   11,  44,  99,  37,  53,  91,  151, 74,  95,  138, 203, 111, 137, 185, 255,
      73,  99,  150, 226, 114, 146, 202, 0,   155, 192, 255, 57,  196, 239, 23,  115,
      139, 178, 239, 58,  178, 221, 22,  111, 216, 0,   71,  165, 255, 43,  120, 219}},
    {PixelOperation::kInvert,
     0,
     Interpolation::kNearest,
     {255, 244, 211, 156, 218, 202, 164, 104, 181, 160, 117, 52,  144, 118, 70,  0,
      185, 161, 115, 47,  148, 119, 68,  251, 111, 77,  21,  199, 74,  35,  230, 147,
      115, 78,  19,  194, 78,  36,  228, 142, 41,  250, 181, 90,  4,   208, 134, 38}},
    {PixelOperation::kGrey,
     0,
     Interpolation::kNearest,
     {57, 79, 122, 159, 94, 121, 140, 60, 131, 133, 187, 112, 168, 175, 84, 164,
      57, 79, 122, 159, 94, 121, 140, 60, 131, 133, 187, 112, 168, 175, 84, 164,
      57, 79, 122, 159, 94, 121, 140, 60, 131, 133, 187, 112, 168, 175, 84, 164}},
    {PixelOperation::kPosterise,
     3,
     Interpolation::kNearest,
     {0,   0,   32,  96,  32,  32,  64,  128, 64,  64,  128, 192, 96,  128, 160, 224,
      64,  64,  128, 192, 96,  128, 160, 0,   128, 160, 224, 32,  160, 192, 0,   96,
      128, 160, 224, 32,  160, 192, 0,   96,  192, 0,   64,  160, 224, 32,  96,  192}},
    {PixelOperation::kSolarise,
     100,
     Interpolation::kNearest,
     {0,   11, 44,  99, 37,  53,  91, 104, 74,  95, 117, 52, 144, 118, 70,  0,
      70,  94, 115, 47, 148, 119, 68, 4,   111, 77, 21,  56, 74,  35,  25,  147,
      115, 78, 19,  61, 78,  36,  27, 142, 41,  5,  74,  90, 4,   47,  134, 38}},
    {PixelOperation::kSolariseAdd,
     60,
     Interpolation::kNearest,
     {60,  71,  104, 159, 97,  113, 151, 151, 134, 155, 138, 203, 171, 137, 185, 255,
      130, 154, 140, 208, 167, 136, 187, 64,  144, 178, 234, 116, 181, 220, 85,  168,
      140, 177, 236, 121, 177, 219, 87,  173, 214, 65,  134, 165, 251, 107, 181, 217}},
    {PixelOperation::kColour,
     0.4,
     Interpolation::kNearest,
     {34, 51,  90,  135, 71,  93,  120, 96, 108, 117, 167, 148, 145, 159, 124, 200,
      62, 85,  129, 178, 99,  127, 158, 37, 136, 151, 205, 89,  173, 193, 60,  141,
      90, 118, 167, 119, 127, 160, 94,  81, 164, 81,  141, 133, 201, 123, 98,  185}},
    {PixelOperation::kColour,
     1.7,
     Interpolation::kNearest,
     {0,   0,   0,   57,  0,   5,   56,  214, 34,  68,  103, 255, 71,  110, 255, 255,
      79,  104, 152, 242, 116, 146, 219, 0,   153, 209, 255, 16,  190, 251, 0,   68,
      198, 245, 255, 0,   235, 255, 0,   150, 255, 0,   0,   202, 255, 0,   146, 254}},
    {PixelOperation::kContrast,
     0.3,
     Interpolation::kNearest,
     {86,  90,  100, 116, 97,  102, 114, 132, 109, 115, 128, 147, 120, 127, 142, 163,
      107, 115, 128, 149, 118, 127, 142, 88,  130, 140, 157, 103, 141, 152, 94,  119,
      128, 139, 157, 105, 139, 152, 94,  120, 151, 88,  109, 136, 162, 100, 123, 151}},
    {PixelOperation::kContrast,
     1.9,
     Interpolation::kNearest,
     {0,   0,   0,   76,  0,   0,   61,  175, 29,  68,  150, 255, 99,  148, 239, 255,
      21,  67,  154, 255, 91,  146, 243, 0,   162, 226, 255, 0,   232, 255, 0,   93,
      154, 224, 255, 4,   224, 255, 0,   103, 255, 0,   29,  201, 255, 0,   118, 255}},
    {PixelOperation::kBrightness,
     0.7,
     Interpolation::kNearest,
     {0,  7,   30,  69,  25,  37,  63,  105, 51,  66,  96,  142, 77,  95,  129, 178,
      49, 65,  98,  145, 74,  95,  130, 2,   100, 124, 163, 39,  126, 154, 17,  75,
      98, 123, 165, 42,  123, 153, 18,  79,  149, 3,   51,  115, 175, 32,  84,  151}},
    {PixelOperation::kBrightness,
     1.6,
     Interpolation::kNearest,
     {0,   17,  70,  158, 59,  84,  145, 241, 118, 152, 220, 255, 177, 219, 255, 255,
      112, 150, 224, 255, 171, 217, 255, 6,   230, 255, 255, 89,  255, 255, 40,  172,
      224, 255, 255, 97,  255, 255, 43,  180, 255, 8,   118, 255, 255, 75,  193, 255}},
    {PixelOperation::kSharpness,
     0.1,
     Interpolation::kNearest,
     {0,   11,  44,  99,  37,  57,  95,  151, 74,  99,  142, 203, 111, 137, 185, 255,
      70,  94,  140, 208, 107, 140, 156, 4,   144, 164, 167, 56,  181, 220, 25,  108,
      140, 177, 236, 61,  177, 170, 84,  113, 214, 80,  96,  165, 251, 47,  121, 217}},
    {PixelOperation::kSharpness,
     1.9,
     Interpolation::kNearest,
     {0,   11,  44,  99,  37,  48,  86,  151, 74,  90,  133, 203, 111, 137, 185, 255,
      70,  94,  140, 208, 107, 131, 217, 4,   144, 191, 255, 56,  181, 220, 25,  108,
      140, 177, 236, 61,  177, 255, 0,   113, 214, 0,   51,  165, 251, 47,  121, 217}},
    {PixelOperation::kHue,
     0.1,
     Interpolation::kNearest,
     {10,  23,  58,  61,  47,  65,  27,  151, 85,  6,   74,  203, 121, 47,  185, 255,
      0,   11,  44,  208, 37,  53,  187, 4,   75,  178, 234, 57,  111, 220, 25,  108,
      140, 177, 236, 110, 177, 219, 57,  28,  214, 14,  104, 81,  251, 56,  29,  132}},
    {PixelOperation::kHue,
     -0.3,
     Interpolation::kNearest,
     {43,  62,  103, 208, 80,  104, 187, 4,   117, 178, 234, 57,  154, 220, 25,  108,
      140, 177, 236, 61,  177, 219, 27,  84,  214, 6,   74,  136, 251, 47,  89,  188,
      0,   11,  44,  65,  37,  53,  53,  151, 75,  58,  101, 203, 111, 100, 185, 255}},
    {PixelOperation::kBlur,
     0.3,
     Interpolation::kNearest,
     {3,   14,  47,  99,  37,  53,  91,  148, 74,  95,  138, 200, 108, 134, 182, 249,
      73,  97,  143, 196, 107, 136, 177, 23,  145, 178, 214, 64,  180, 210, 46,  102,
      146, 177, 217, 72,  179, 200, 48,  110, 205, 27,  74,  162, 239, 57,  118, 211}},
    {PixelOperation::kBlur,
     1.7,
     Interpolation::kNearest,
     {54,  68,  87,  102, 69,  84,  104, 120, 91,  106, 128, 144, 106, 122, 145, 162,
      121, 124, 128, 130, 130, 129, 127, 126, 141, 136, 127, 121, 150, 141, 127, 118,
      155, 147, 136, 128, 154, 146, 137, 130, 153, 146, 139, 134, 153, 146, 141, 138}},
    {PixelOperation::kBlur,
     6.5,
     Interpolation::kNearest,
     {112, 112, 113, 113, 112, 112, 113, 113, 113, 113, 114, 114, 113, 113, 114, 114,
      132, 131, 131, 132, 132, 131, 131, 132, 132, 132, 132, 132, 132, 132, 132, 132,
      162, 162, 162, 162, 162, 162, 162, 162, 163, 163, 163, 163, 163, 163, 163, 163}},
    {PixelOperation::kRotate,
     30,
     Interpolation::kNearest,
     {128, 44,  99,  128, 0,   53,  91,  203, 37,  95,  138, 255, 128, 111, 137, 128,
      128, 140, 208, 128, 70,  136, 187, 56,  107, 178, 234, 108, 128, 181, 220, 128,
      128, 236, 61,  128, 140, 219, 27,  165, 177, 5,   74,  217, 128, 251, 47,  128}},
    {PixelOperation::kRotate,
     30,
     Interpolation::kBilinear,
     {128, 37,  104, 128, 17,  57,  117, 193, 43,  78,  132, 207, 128, 101, 145, 128,
      128, 131, 130, 128, 93,  144, 168, 46,  113, 158, 192, 91,  128, 175, 184, 128,
      128, 225, 102, 128, 169, 165, 57,  155, 183, 96,  60,  157, 128, 168, 60,  128}},
    {PixelOperation::kRotate,
     30,
     Interpolation::kBicubic,
     {128, 29,  101, 128, 10,  49,  125, 191, 46,  69,  129, 216, 128, 102, 148, 128,
      128, 120, 127, 128, 85,  152, 188, 24,  115, 144, 219, 81,  128, 185, 186, 128,
      128, 255, 91,  128, 178, 189, 12,  154, 187, 97,  26,  171, 128, 157, 34,  128}},
    {PixelOperation::kRotate,
     -18,
     Interpolation::kBilinear,
     {19,  15,  27,  69,  55,  58,  78,  114, 95,  108, 137, 177, 124, 160, 204, 227,
      89,  92,  117, 171, 125, 139, 171, 110, 168, 187, 202, 30,  201, 124, 82,  80,
      159, 169, 207, 154, 195, 181, 82,  96,  183, 22,  77,  139, 141, 83,  151, 189}},
    {PixelOperation::kShearX,
     0.3,
     Interpolation::kNearest,
     {0,   11,  44,  99,  37,  53,  91,  151, 95,  138, 203, 128, 137, 185, 255, 128,
      70,  94,  140, 208, 107, 136, 187, 4,   178, 234, 56,  128, 220, 25,  108, 128,
      140, 177, 236, 61,  177, 219, 27,  113, 5,   74,  165, 128, 47,  121, 217, 128}},
    {PixelOperation::kShearX,
     0.3,
     Interpolation::kBilinear,
     {1,   15,  52,  99,  44,  70,  118, 151, 89,  127, 186, 128, 139, 188, 255, 128,
      73,  100, 150, 208, 120, 158, 104, 4,   169, 220, 100, 128, 210, 29,  108, 128,
      145, 185, 209, 61,  195, 132, 65,  113, 57,  56,  142, 128, 50,  125, 217, 128}},
    {PixelOperation::kShearX,
     0.3,
     Interpolation::kBicubic,
     {1,   16,  55,  104, 39,  65,  123, 159, 83,  119, 188, 128, 140, 190, 255, 128,
      72,  102, 155, 215, 114, 183, 111, 0,   161, 246, 103, 128, 211, 20,  111, 128,
      144, 193, 216, 42,  217, 128, 39,  124, 47,  34,  145, 128, 41,  129, 221, 128}},
    {PixelOperation::kShearY,
     -0.2,
     Interpolation::kBilinear,
     {0,   11,  44,  128, 33,  40,  67,  114, 70,  82,  114, 166, 107, 124, 161, 218,
      70,  94,  140, 128, 103, 123, 163, 146, 140, 165, 210, 19,  177, 207, 129, 71,
      140, 177, 236, 128, 173, 206, 131, 76,  210, 69,  50,  128, 247, 34,  97,  180}},
    {PixelOperation::kTranslateX,
     0.3,
     Interpolation::kNearest,
     {11,  44,  99,  128, 53,  91,  151, 128, 95,  138, 203, 128, 137, 185, 255, 128,
      94,  140, 208, 128, 136, 187, 4,   128, 178, 234, 56,  128, 220, 25,  108, 128,
      177, 236, 61,  128, 219, 27,  113, 128, 5,   74,  165, 128, 47,  121, 217, 128}},
    {PixelOperation::kTranslateX,
     0.3,
     Interpolation::kBilinear,
     {17,  55,  99,  128, 60,  103, 151, 128, 103, 151, 203, 128, 146, 199, 255, 128,
      103, 153, 208, 128, 146, 150, 4,   128, 189, 198, 56,  128, 181, 41,  108, 128,
      188, 200, 61,  128, 180, 44,  113, 128, 18,  92,  165, 128, 61,  140, 217, 128}},
    {PixelOperation::kTranslateX,
     0.3,
     Interpolation::kBicubic,
     {17,  59,  106, 128, 60,  107, 158, 128, 104, 156, 211, 128, 147, 205, 255, 128,
      104, 159, 216, 128, 155, 156, 0,   128, 199, 205, 33,  128, 183, 16,  118, 128,
      199, 208, 38,  128, 183, 19,  124, 128, 0,   101, 176, 128, 32,  149, 229, 128}},
    {PixelOperation::kTranslateY,
     -0.4,
     Interpolation::kBilinear,
     {128, 128, 128, 128, 128, 128, 128, 128, 14,  27,  62,  119, 51,  69,  109, 171,
      128, 128, 128, 128, 128, 128, 128, 128, 84,  110, 158, 126, 121, 152, 205, 24,
      128, 128, 128, 128, 128, 128, 128, 128, 154, 193, 152, 81,  191, 133, 45,  133}},
};

TEST(PixelOperation, GivesPillowsBytes) {
  for (const PillowCase& one : kPillowCases) {
    EXPECT_EQ(changed(one.operation, one.argument, pattern(4, 4), one.interpolation), one.expected)
        << enum_name(one.operation) << " of " << one.argument;
  }
}

TEST(PixelOperation, EvensAHistogramAsWorkedByHand) {
  // 511 pixels: 255 of 10, 255 of 20 and one of 30. A step is (511 - 1) / 255 = 2 pixels; below 20
  // lie 255 + 1 halves of a step, and 30 has the end of the range.
  EditedImage image{{3, 7, 73}, std::vector<uint8_t>(3 * 511, 10)};
  for (size_t channel = 0; channel < 3; ++channel) {
    for (size_t i = 255; i < 510; ++i) image.pixel_CHW[channel * 511 + i] = 20;
    image.pixel_CHW[channel * 511 + 510] = 30;
  }
  const std::vector<uint8_t> even = changed(PixelOperation::kEqualise, 0, image);
  EXPECT_EQ(even[0], 0);
  EXPECT_EQ(even[255], 128);
  EXPECT_EQ(even[510], 255);
}

TEST(PixelOperation, KeepsTheImageWhereTheArgumentSaysSo) {
  const EditedImage image = pattern(7, 9);
  for (const auto& [operation, argument] : {std::pair{PixelOperation::kRotate, 0.0},
                                            {PixelOperation::kPosterise, 8.0},
                                            {PixelOperation::kSolarise, 256.0},
                                            {PixelOperation::kSolariseAdd, 0.0},
                                            {PixelOperation::kColour, 1.0},
                                            {PixelOperation::kContrast, 1.0},
                                            {PixelOperation::kBrightness, 1.0},
                                            {PixelOperation::kSharpness, 1.0},
                                            {PixelOperation::kBlur, 0.0},
                                            {PixelOperation::kShearX, 0.0},
                                            {PixelOperation::kShearY, 0.0},
                                            {PixelOperation::kTranslateX, 0.0},
                                            {PixelOperation::kTranslateY, 0.0}}) {
    for (const Interpolation interpolation :
         {Interpolation::kNearest, Interpolation::kBilinear, Interpolation::kBicubic}) {
      EXPECT_EQ(changed(operation, argument, image, interpolation), image.pixel_CHW)
          << enum_name(operation);
    }
  }
}

TEST(PixelOperation, TakesImagesOfOnePixelAndOddSizes) {
  for (size_t i = 0; i < kEnumWords<PixelOperation>.size(); ++i) {
    const auto operation = static_cast<PixelOperation>(i);
    for (const auto& [height, width] :
         {std::pair{1, 1}, {1, 6}, {5, 1}, {2, 2}, {3, 7}, {33, 65}}) {
      for (const Interpolation interpolation :
           {Interpolation::kNearest, Interpolation::kBilinear, Interpolation::kBicubic}) {
        const EditedImage image = pattern(height, width);
        EXPECT_EQ(changed(operation, 0.4, image, interpolation).size(), image.pixel_CHW.size())
            << enum_name(operation);
      }
    }
  }
}

TEST(PixelOperation, BlursAStepAsAGaussianDoes) {
  EditedImage image{{1, 40, 40}, std::vector<uint8_t>(1600, 0)};
  for (size_t i = 0; i < 1600; ++i) image.pixel_CHW[i] = i % 40 < 20 ? 0 : 255;
  const std::vector<uint8_t> blurred = changed(PixelOperation::kBlur, 3.0, image);
  for (int x = 12; x < 28; ++x) {
    const double exact = 127.5 * (1.0 + std::erf((x + 0.5 - 20.0) / (3.0 * std::sqrt(2.0))));
    EXPECT_NEAR(blurred[static_cast<size_t>(20 * 40 + x)], exact, 3.0) << x;
  }
}

TEST(PixelOperation, FillsWhatAWarpLeavesEmpty) {
  const std::vector<uint8_t> moved =
      changed(PixelOperation::kTranslateX, 0.5, pattern(2, 4), Interpolation::kNearest);
  const std::vector<uint8_t> image = pattern(2, 4).pixel_CHW;
  for (size_t row = 0; row < 6; ++row) {
    EXPECT_EQ(moved[row * 4], image[row * 4 + 2]);
    EXPECT_EQ(moved[row * 4 + 1], image[row * 4 + 3]);
    EXPECT_EQ(moved[row * 4 + 2], kWarpFill);
    EXPECT_EQ(moved[row * 4 + 3], kWarpFill);
  }
}

}  // namespace
}  // namespace shoal
