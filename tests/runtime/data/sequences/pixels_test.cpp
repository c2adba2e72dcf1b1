#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/images/cifar_records.h"
#include "tests/runtime/data/source_of.h"
#include "tests/runtime/data/training_mistakes.h"
#include "tests/support/config_error.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScratchFolder;
using testing::write_file;

std::shared_ptr<DataSource> pixel_source(const std::string& images) {
  return testing::source_of("{source: pixels, images: " + images + "}");
}

std::vector<std::string> pixel_mistakes(const std::string& keys) {
  return testing::mistakes_of([&] { testing::source_of("{source: pixels" + keys + "}"); });
}

TEST(Pixels, AreTheGreyValuesOfAnImageRowByRow) {
  const ScratchFolder folder;
  std::string record(1 + CifarLayout::kImageBytes, '\0');
  record[0] = 7;
  const auto set_pixel = [&](size_t pixel, int red, int green, int blue) {
    record[1 + pixel] = static_cast<char>(red);
    record[1 + 1024 + pixel] = static_cast<char>(green);
    record[1 + 2048 + pixel] = static_cast<char>(blue);
  };
  set_pixel(0, 255, 255, 255);
  set_pixel(1, 255, 0, 0);
  set_pixel(31, 0, 255, 0);
  set_pixel(32, 0, 0, 255);  // the second row
  set_pixel(33, 10, 20, 30);
  write_file(folder.file("a.bin"), record);
  const auto source = pixel_source("{source: cifar, path: " + folder.path() +
                                   ", train: {files: [a.bin]}, valid: {files: [b.bin]}}");
  EXPECT_EQ(source->shape().text(), "1024 tokens of a vocabulary of 256 and labels of 10 classes");
  EXPECT_FALSE(source->image_transform().has_value());
  const auto set = source->open(Split::kTrain);
  ASSERT_EQ(set->size(), 1);
  const Sample sample = set->read(0, 0);
  EXPECT_EQ(sample.label, 7);
  EXPECT_TRUE(sample.pixel_CHW.empty());
  ASSERT_EQ(sample.token_S.size(), 1024u);
  EXPECT_EQ(sample.token_S[0], 255);
  EXPECT_EQ(sample.token_S[1], 76);    // 0.2989 * 255.5
  EXPECT_EQ(sample.token_S[31], 149);  // 0.5870 * 255.5
  EXPECT_EQ(sample.token_S[32], 29);   // 0.1140 * 255.5
  EXPECT_EQ(sample.token_S[33], 18);   // 2.989 + 11.74 + 3.42
  EXPECT_EQ(sample.token_S[2], 0);
  EXPECT_EQ(set->fingerprint().substr(0, 10), "a.bin 3073");
  EXPECT_THROW(source->open(Split::kValid), DataError);
}

TEST(Pixels, OfOneChannelAreItsValues) {
  const auto source = pixel_source("{source: pathfinder, image_size: 32}");
  const auto images =
      Registry<DataSource>::create(Choice<DataSource>("pathfinder"), {})->open(Split::kValid);
  const auto set = source->open(Split::kValid);
  EXPECT_EQ(set->size(), 20000);
  EXPECT_EQ(source->shape().classes, 2);
  const Sample image = images->read(3, 0), sample = set->read(3, 0);
  EXPECT_EQ(sample.label, image.label);
  EXPECT_EQ(sample.token_S, (std::vector<int64_t>(image.pixel_CHW.begin(), image.pixel_CHW.end())));
}

TEST(Pixels, RefuseWhatTheImagesSourceRefuses) {
  EXPECT_THAT(testing::training_mistakes_of(*pixel_source(
                  "{source: cifar, path: p, train: {files: [a]}, valid: {files: [a]}}")),
              ElementsAre(HasSubstr("images.valid.files: p/a is trained on as")));
  EXPECT_THAT(pixel_mistakes(", images: {source: shapes, classes: 1}"),
              ElementsAre(HasSubstr("images.classes: ")));
}

TEST(Pixels, RefuseSourcesWithoutImagesAndWhatChangesImages) {
  EXPECT_THAT(pixel_mistakes(""), ElementsAre(HasSubstr("images.source: required key is missing")));
  EXPECT_THAT(pixel_mistakes(", images: {source: mqar}"),
              ElementsAre(HasSubstr("images: pixels needs images of 1 or 3 channels, mqar gives 64 "
                                    "tokens")));
  EXPECT_THAT(pixel_mistakes(", images: {source: pixels, images: {source: shapes}}"),
              ElementsAre(HasSubstr("images: pixels needs a source of images")));
  EXPECT_THAT(pixel_mistakes(", images: {source: shapes, augment: {flip: true}}"),
              ElementsAre(HasSubstr("images.augment: pixels reads images as they are")));
  for (const char* mean : {"[0.5, 0.5, 0.5]", "[0.5]"}) {
    EXPECT_THAT(pixel_mistakes(std::string(", images: {source: shapes, normalise: {mean: ") + mean +
                               ", std: auto}}"),
                ElementsAre(HasSubstr("images.normalise: pixels reads images as they are")));
  }
  EXPECT_THAT(pixel_mistakes(", images: {source: shapes, augment: {flip: false}}"), ElementsAre());
}

}  // namespace
}  // namespace shoal
