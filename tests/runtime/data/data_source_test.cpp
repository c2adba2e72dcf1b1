#include "runtime/data/data_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/images/shapes.h"
#include "runtime/options/config_keys.h"
#include "runtime/options/config_reader.h"
#include "tests/support/config_error.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DataOptions read(const std::string& text) {
  return config::load_options_text<DataOptions>(text, "r.yaml").options;
}

std::vector<std::string> mistakes(const std::string& text) {
  return testing::mistakes_of([&] { read(text); });
}

TEST(DataOptions, HoldTheSourcesKeysBesideTheirOwn) {
  const DataOptions options = read(
      "source: cifar\n"
      "path: some/folder\n"
      "train: {files: [data_batch_1.bin, data_batch_2.bin]}\n"
      "valid: {files: [data_batch_5.bin]}\n"
      "augment: {crop_padding: 4, flip: true}\n"
      "normalise: {mean: [0.5, 0.5, 0.5]}\n");
  const auto cifar = Registry<DataSource>::create(options.source, {});
  EXPECT_THAT(cifar->files(Split::kTrain),
              ElementsAre("some/folder/data_batch_1.bin", "some/folder/data_batch_2.bin"));
  EXPECT_THAT(cifar->files(Split::kValid), ElementsAre("some/folder/data_batch_5.bin"));
  const ImageTransform images = cifar->image_transform().value();
  EXPECT_EQ(images.augment.crop_padding, 4);
  EXPECT_TRUE(images.augment.flip);
  EXPECT_THAT(images.stats.mean, ElementsAre(0.5, 0.5, 0.5));
  EXPECT_THAT(images.stats.std, ElementsAre(0.2470, 0.2435, 0.2616));  // CIFAR-10's own
}

TEST(DataOptions, BuildTheSourceTheyName) {
  const DataOptions options = read("{source: shapes, image_size: 16, classes: 3}");
  const auto source = Registry<DataSource>::create(options.source, {});
  EXPECT_EQ(source->shape().image, (ImageShape{3, 16, 16}));
  EXPECT_EQ(source->shape().classes, 3);
}

TEST(DataOptions, ListTheKeysOfASourceInsideASourceOnce) {
  std::vector<std::string> below_images;
  for (const config::KeyInfo& key : config::list_keys(config::type_of<DataOptions>())) {
    if (key.path.starts_with("images.")) below_images.push_back(key.path);
  }
  EXPECT_THAT(below_images, ElementsAre("images.source"));
}

TEST(DataOptions, PointAtAFileNamedTwice) {
  EXPECT_THAT(mistakes("source: cifar\n"
                       "valid:\n"
                       "  files: [a.bin, a.bin]\n"),
              ElementsAre(HasSubstr("r.yaml:3:10: valid.files: ")));
}

TEST(DataOptions, RefuseASplitOfNoFiles) {
  EXPECT_THAT(mistakes("{source: cifar, train: {files: []}}"),
              ElementsAre(HasSubstr("train.files: the list is empty")));
}

TEST(DataOptions, RefuseWhatNoSourceOrAnotherSourceHas) {
  EXPECT_THAT(mistakes("{source: image_folder, classes: 1}"),
              ElementsAre(HasSubstr("classes: must be at least 2")));
  EXPECT_THAT(mistakes("{source: cifa}"), ElementsAre(HasSubstr("did you mean 'cifar'?")));
  EXPECT_THAT(mistakes("{source: cifar, noise: 2}"), ElementsAre(HasSubstr("noise")));
  EXPECT_THAT(mistakes("{source: shapes, classes: 1, noise: 2, train: {samples: 0}}").size(), 3u);
  EXPECT_THAT(mistakes("{source: shapes, augment: {crop_padding: -1}, normalise: {std: [0]}}"),
              ElementsAre(HasSubstr("augment.crop_padding"), HasSubstr("normalise.std")));
}

}  // namespace
}  // namespace shoal
