#include "launch/report/tensor_picture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace shoal {
namespace {

TEST(TensorPicture, RoundsValuesAndShowsOneChannelGrey) {
  const torch::Tensor colour =
      torch::tensor({0.0, 1.0, 0.5, 0.2, -1.0, 2.0}, torch::kFloat64).view({3, 1, 2});
  EXPECT_EQ(picture_of(colour).pixels, (std::vector<Rgb>{{0, 128, 0}, {255, 51, 255}}));
  const Picture grey = picture_of(torch::tensor({0.0f, 0.2f}).view({1, 2, 1}));
  EXPECT_EQ(grey.width, 1);
  EXPECT_EQ(grey.pixels, (std::vector<Rgb>{{0, 0, 0}, {51, 51, 51}}));
}

TEST(TensorPicture, ShowsWhatIsNoNumberBlack) {
  const torch::Tensor nan = torch::full({3, 1, 1}, std::nan(""), torch::kFloat64);
  EXPECT_EQ(picture_of(nan).pixels, (std::vector<Rgb>{{0, 0, 0}}));
}

}  // namespace
}  // namespace shoal
