#include "models/tasks/image_mix.h"

#include <gtest/gtest.h>

#include <ATen/ops/binary_cross_entropy_with_logits.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/build_model.h"
#include "tests/support/config_error.h"
#include "tests/support/gradient_check.h"
#include "tests/support/model_fill.h"
#include "tests/support/some_batch.h"

// b images
namespace shoal {
namespace {

using testing::in_step;
using testing::some_batch;
using testing::some_step;

constexpr int64_t kSide = 16;

std::vector<ImageMix> draws(const ImageMixOptions& options, int64_t steps) {
  std::vector<ImageMix> all;
  for (int64_t step = 0; step < steps; ++step) {
    if (const auto mix = draw_image_mix(options, 7, step, kSide, kSide)) all.push_back(*mix);
  }
  return all;
}

TEST(ImageMix, SharesHaveTheMomentsOfTheBetaDistribution) {
  for (const double a : {0.2, 0.8, 1.0, 4.0}) {
    double sum = 0, square = 0;
    const auto all = draws({.mixup = a}, 20000);
    ASSERT_EQ(all.size(), 20000u);
    for (const ImageMix& mix : all) {
      EXPECT_FALSE(mix.rectangle);
      sum += mix.own_share;
      square += std::pow(mix.own_share - 0.5, 2);
    }
    EXPECT_NEAR(sum / 20000, 0.5, 0.01) << a;
    EXPECT_NEAR(square / 20000, 1 / (4 * (2 * a + 1)), 0.003) << a;
  }
}

TEST(ImageMix, RectanglesLeaveTheShareThatTheLabelsGet) {
  int64_t uncut = 0;
  for (const ImageMix& mix : draws({.cutmix = 1.0}, 2000)) {
    ASSERT_TRUE(mix.rectangle);
    const auto [top, bottom, left, right] = *mix.rectangle;
    EXPECT_TRUE(0 <= top && top <= bottom && bottom <= kSide);
    EXPECT_TRUE(0 <= left && left <= right && right <= kSide);
    const double area = static_cast<double>((bottom - top) * (right - left));
    EXPECT_NEAR(mix.own_share, 1 - area / (kSide * kSide), 1e-15);
    uncut += bottom - top == right - left ? 1 : 0;
  }
  EXPECT_GT(uncut, 200);
  EXPECT_LT(uncut, 1900) << "some are cut at the border";
}

TEST(ImageMix, StepsDoTheirSharesOfEachKind) {
  const auto all =
      draws({.mixup = 0.8, .cutmix = 1.0, .probability = 0.6, .cutmix_share = 0.25}, 20000);
  EXPECT_NEAR(static_cast<double>(all.size()) / 20000, 0.6, 0.02);
  double cuts = 0;
  for (const ImageMix& mix : all) cuts += mix.rectangle ? 1 : 0;
  EXPECT_NEAR(cuts / static_cast<double>(all.size()), 0.25, 0.02);
  EXPECT_TRUE(draws({}, 100).empty());
}

TEST(ImageMix, PartnersComeFromTheEndOfTheRoutingGroup) {
  const torch::Tensor value = torch::arange(6, torch::kInt64);
  EXPECT_TRUE(partners(value, 3).equal(torch::tensor({2, 1, 0, 5, 4, 3}, torch::kInt64)));
  EXPECT_TRUE(partners(value, 2).equal(torch::tensor({1, 0, 3, 2, 5, 4}, torch::kInt64)));
  EXPECT_THROW(partners(value, 4), c10::Error);
  EXPECT_EQ(partners(value.narrow(0, 0, 0), 4).numel(), 0);
}

TEST(ImageMix, PixelsAreMeansOrTheRectangleOfTheOther) {
  const torch::Tensor image =
      torch::arange(2 * 12, torch::kFloat64).view({2, 1, 3, 4});  // the second is 12 above
  EXPECT_TRUE(torch::allclose(mixed(image, {0.75}, 2)[0], image[0] + 3));
  EXPECT_TRUE(torch::allclose(mixed(image, {0.75}, 2)[1], image[1] - 3));
  const torch::Tensor cut = mixed(image, {0.5, ImageMix::Rectangle{1, 3, 0, 3}}, 2);
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t column = 0; column < 4; ++column) {
      const bool is_other = row >= 1 && column < 3;
      EXPECT_EQ(cut[0][0][row][column].item<double>(),
                image[0][0][row][column].item<double>() + (is_other ? 12 : 0));
    }
  }
}

class MixingClassifier : public ::testing::Test {
 protected:
  static std::shared_ptr<Task> make(const std::string& task) {
    ModelContext build;
    build.tensor_options = build.tensor_options.dtype(torch::kFloat64);
    auto made = testing::build_model(
        "model: {backbone: mixer, patch: 4, width: 8, depth: 1}\n"
        "task: {name: classify, " +
            task + "}",
        {3, 8, 8}, 3, build);
    testing::fill_parameters(*made);
    return made;
  }
  static double loss(Task& task, Batch batch) {
    return task.train(in_step(std::move(batch), some_step(6, true))).loss.item<double>();
  }
};

TEST_F(MixingClassifier, LossIsThatOfMixedImagesWithBothLabels) {
  const Batch batch = some_batch(6, {3, 8, 8});
  const ImageMixOptions options{.mixup = 0.8};
  const ImageMix mix = *draw_image_mix(options, some_step(6, true).seed, 0, 8, 8);
  Batch by_hand = batch;
  by_hand.image_bVCHW = mixed(batch.image_bCHW(), mix, 2).unsqueeze(1);
  const auto plain = make("label_smoothing: 0.1");
  const double own = loss(*plain, by_hand);
  by_hand.label_b = partners(batch.label_b, 2);
  const double other = loss(*plain, by_hand);
  EXPECT_NE(own, other);
  EXPECT_NEAR(loss(*make("label_smoothing: 0.1, mix: {mixup: 0.8}"), batch),
              mix.own_share * own + (1 - mix.own_share) * other, 1e-13);
}

TEST_F(MixingClassifier, BinaryLossIsTheMeanOfEachClassesOwn) {
  const Batch batch = some_batch(6, {3, 8, 8});
  const auto task = make("loss: binary_cross_entropy, label_smoothing: 0.3");
  const torch::Tensor logits = task->outputs(in_step(batch, some_step(6, true)));
  torch::Tensor target = torch::full({6, 3}, 0.1, torch::kFloat64);
  for (int64_t i = 0; i < 6; ++i) target[i][batch.label_b[i].item<int64_t>()] = 0.8;
  EXPECT_NEAR(loss(*task, batch),
              at::binary_cross_entropy_with_logits(logits, target).item<double>(), 1e-14);
}

TEST_F(MixingClassifier, EvaluatesTheBinaryLossWithoutSmoothingBesideTheCrossEntropy) {
  const Batch batch = in_step(some_batch(6, {3, 8, 8}), some_step(6, false));
  const auto task = make("loss: binary_cross_entropy, label_smoothing: 0.3");
  const torch::Tensor logits = task->outputs(batch);
  torch::Tensor target = torch::zeros({6, 3}, torch::kFloat64);
  for (int64_t i = 0; i < 6; ++i) target[i][batch.label_b[i].item<int64_t>()] = 1.0;
  const EvalOutput sums = task->evaluate(batch);
  const std::vector<Metric> metrics = task->metrics(sums.sums);
  ASSERT_EQ(metrics.size(), 4u);
  EXPECT_EQ(metrics[0].name, "loss");
  EXPECT_NEAR(metrics[0].value, at::binary_cross_entropy_with_logits(logits, target).item<double>(),
              1e-14);
  EXPECT_EQ(metrics[3].name, "cross_entropy");
  EXPECT_NEAR(metrics[3].value, testing::sum_of(make("mix: {}")->evaluate(batch), "loss") / 6,
              1e-14);
  EXPECT_EQ(make("mix: {}")->metrics(make("mix: {}")->evaluate(batch).sums).size(), 3u);
}

TEST_F(MixingClassifier, NeedsImages) {
  EXPECT_EQ(testing::config_error_of([] {
              testing::build_task(
                  "model: {backbone: gpt2, width: 8, depth: 1, heads: 2}\n"
                  "task: {name: classify, mix: {cutmix: 1}}",
                  {.source = "test", .sequence = 4, .vocabulary = 5, .classes = 3}, {});
            }).substr(0, 44),
            "task.mix: Mixup and CutMix need images, data");
}

}  // namespace
}  // namespace shoal
