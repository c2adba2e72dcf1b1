#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/loader/loader.h"

namespace shoal {
namespace {

constexpr ImageShape kImageShape{3, 5, 6};

/// Sample i has label i and pixels of many values.
class ColouredSet : public SampleSet {
 public:
  int64_t size() const override { return 50; }
  Sample read(int64_t index, int64_t /*epoch*/) const override {
    Sample sample{.shape = kImageShape, .pixel_CHW = {}, .label = index};
    for (int64_t i = 0; i < kImageShape.bytes(); ++i) {
      sample.pixel_CHW.push_back(static_cast<uint8_t>((index * 31 + i * i * 7) % 251));
    }
    return sample;
  }
};

/// Two views; colours and shapes change, in the second of them less often.
LoaderSettings settings_with_transforms() {
  LoaderSettings settings;
  settings.cut = {24, 3, 4};
  settings.seed = 11;
  settings.shape = {.source = "coloured", .image = kImageShape, .classes = 50};
  settings.images = ImageTransform{
      kImageShape, {.crop_padding = 2, .flip = true}, {{0.4, 0.5, 0.6}, {0.2, 0.25, 0.3}}};
  settings.images->augment.transforms = {{"three_augment", {.all = 1.0}},
                                         {"rand_augment", {.views = {1.0, 0.5}}},
                                         {"blur", {.views = {0.9, 0.1}}},
                                         {"random_erasing", {.all = 0.5}}};
  settings.views = 2;
  return settings;
}

TEST(TrainLoader, RepeatsEachSampleAugmentedAnew) {
  const ColouredSet samples;
  LoaderSettings how = settings_with_transforms();
  TrainLoader once(samples, how);
  const torch::Tensor label_b = at::cat({once.next().label_b, once.next().label_b}).slice(0, 0, 8);
  how.images->augment.repeats = 3;
  TrainLoader repeated(samples, how);
  const Batch first = repeated.next(), second = repeated.next(), third = repeated.next();
  EXPECT_TRUE(at::equal(at::cat({first.label_b, second.label_b, third.label_b}),
                        label_b.repeat_interleave(3)));
  EXPECT_FALSE(at::equal(first.image_bVCHW[0], first.image_bVCHW[1]));
}

TEST(TrainLoader, TransformsTheSameForAnyNumberOfWorkersAndRanks) {
  const ColouredSet samples;
  LoaderSettings how = settings_with_transforms();
  std::vector<torch::Tensor> expected;
  TrainLoader serial(samples, how);
  for (int i = 0; i < 6; ++i) expected.push_back(serial.next().image_bVCHW);
  for (const int64_t workers : {1, 2, 5}) {
    how.workers = workers;
    how.world = 2;
    TrainLoader first(samples, how);
    how.rank = 1;
    TrainLoader second(samples, how);
    how.rank = 0;
    for (const torch::Tensor& image_bVCHW : expected) {
      const torch::Tensor parts = at::cat({first.next().image_bVCHW, second.next().image_bVCHW});
      EXPECT_TRUE(at::equal(parts, image_bVCHW)) << workers << " workers";
    }
  }
}

TEST(TrainLoader, TransformsBetweenTheCropAndTheFlip) {
  const ColouredSet samples;
  const LoaderSettings how = settings_with_transforms();
  const ImageTransform& images = *how.images;
  const TransformChain chain(images.augment.transforms, 3, {images.stats.mean});
  const PixelWriter writer(kImageShape, images.stats);
  TrainLoader loader(samples, how);
  const Batch batch = loader.next();
  std::vector<float> values(static_cast<size_t>(kImageShape.bytes()));
  for (int64_t row = 0; row < 8; ++row) {
    for (int64_t view = 0; view < 2; ++view) {
      const int64_t position = batch.context.sample_b[row].item<int64_t>();
      AugmentDraw draw = draw_augment(images.augment, how.seed, position, view);
      EditedImage image{kImageShape, samples.read(batch.label_b[row].item<int64_t>(), 0).pixel_CHW};
      shift(image, draw);
      chain.apply(image, {how.seed, position, view});
      writer.write<float>(image.pixel_CHW, draw, values);
      const torch::Tensor found = batch.image_bVCHW[row][view].flatten();
      EXPECT_TRUE(std::equal(values.begin(), values.end(), found.data_ptr<float>())) << row;
    }
  }
}

TEST(EvalLoader, TransformsNothing) {
  const ColouredSet samples;
  const LoaderSettings how = settings_with_transforms();
  LoaderSettings plain = how;
  plain.images->augment = {};
  EvalLoader loader(samples, how), expected(samples, plain);
  EXPECT_TRUE(at::equal(loader.next()->image_bVCHW, expected.next()->image_bVCHW));
}

TEST(TrainLoader, RefusesProbabilitiesOfOtherViews) {
  const ColouredSet samples;
  LoaderSettings how = settings_with_transforms();
  how.views = 1;
  EXPECT_THROW(TrainLoader(samples, how), ConfigError);
}

}  // namespace
}  // namespace shoal
