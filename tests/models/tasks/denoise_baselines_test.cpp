#include "models/tasks/denoise_baselines.h"

#include <ATen/ops/linalg_solve.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/tasks/image_quality.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"
#include "tests/support/some_batch.h"

// B images  C channels  H height  W width
namespace shoal {
namespace {

using testing::apart;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::some_numbers;

constexpr ImageShape kShape{1, 8, 8};
constexpr DenoiseOptions kNoise{.sigma = 0.2};

/// Smooth ones in [0, 1], that differ in slopes; the images [first, first + count) of a stream.
Batch smooth_images(int64_t first, int64_t count) {
  const torch::Tensor number = torch::arange(first, first + count, torch::kFloat64);
  const torch::Tensor row = torch::arange(8, torch::kFloat64).view({1, 8, 1}) / 8;
  const torch::Tensor column = torch::arange(8, torch::kFloat64).view({1, 1, 8}) / 8;
  const torch::Tensor slope = (number * 1.7).sin().view({-1, 1, 1}),
                      other = (number * 2.3).cos().view({-1, 1, 1});
  Batch batch;
  batch.image_bVCHW = (0.5 + 0.2 * slope * row + 0.25 * other * column).view({count, 1, 1, 8, 8});
  batch.context.seed = 3;
  batch.context.sample_b = torch::arange(first, first + count, torch::kInt64);
  return batch;
}

std::vector<BaselineScore> scores_of(const DenoiseBaselines& baselines, const Batch& batch) {
  return baselines.scores(baselines.evaluate(batch));
}

std::vector<std::string> score_names(const std::vector<BaselineScore>& scores) {
  std::vector<std::string> names;
  for (const BaselineScore& score : scores) names.push_back(score.name);
  return names;
}

torch::Tensor noisy(const Batch& batch, std::string_view stream) {
  return add_noise(kNoise, batch.image_bCHW(), batch.context, stream);
}

TEST(GaussianBlur, SpreadsAPixelAsAGaussian) {
  torch::Tensor image = torch::zeros({1, 1, 15, 17}, torch::kFloat64);
  image[0][0][7][8] = 1.0;
  const torch::Tensor blurred = gaussian_blur(image, 0.7)[0][0];
  EXPECT_NEAR(blurred.sum().item<double>(), 1.0, 1e-12);
  const auto at = [&](int64_t y, int64_t x) { return blurred[7 + y][8 + x].item<double>(); };
  EXPECT_NEAR(at(1, 0) / at(0, 0), std::exp(-0.5 / 0.49), 1e-12);
  EXPECT_NEAR(at(-2, 1) / at(0, 0), std::exp(-2.5 / 0.49), 1e-12);
  EXPECT_GT(at(3, 0), 0.0);  // 4 x 0.7 = 2.8 pixels, rounded
  EXPECT_EQ(at(4, 0), 0.0);
}

TEST(GaussianBlur, ReflectsAtTheBorderAlsoSeveralTimes) {
  const torch::Tensor image = some_numbers({2, 3, 4, 5}, 1);
  const auto reflected = [](const torch::Tensor& x, int64_t dim) {
    const torch::Tensor flipped = x.flip(dim);
    return torch::cat({x, flipped, x, flipped, x}, dim);
  };
  const torch::Tensor large = gaussian_blur(reflected(reflected(image, 2), 3), 2.0);
  const torch::Tensor middle = large.narrow(2, 8, 4).narrow(3, 10, 5);
  EXPECT_LT(apart(gaussian_blur(image, 2.0), middle), 1e-12);
}

TEST(DenoiseBaselines, WithoutTrainingImagesAreTheNoisyInput) {
  const DenoiseBaselines baselines(kNoise, kShape, 4, torch::kCPU);
  const Batch batch = smooth_images(0, 20);
  const auto scores = scores_of(baselines, batch);
  ASSERT_THAT(score_names(scores), ElementsAre("noisy"));
  const torch::Tensor image = noisy(batch, kEvaluationNoise), clean = batch.image_bCHW();
  EXPECT_NEAR(scores[0].metrics[0].value, psnr(image, clean).mean().item<double>(), 1e-9);
  EXPECT_NEAR(scores[0].metrics[1].value, ssim(image, clean).mean().item<double>(), 1e-9);
  EXPECT_THAT(scores[0].settings, IsEmpty());
}

TEST(DenoiseBaselines, TakeTheBestWidthOnTrainingImages) {
  DenoiseBaselines baselines(kNoise, kShape, 4, torch::kCPU);
  const Batch train = smooth_images(0, 30), valid = smooth_images(100, 10);
  baselines.add(train);
  baselines.fit(*make_self_communicator());
  const auto quality = [](const Batch& batch, std::string_view stream, double width) {
    const torch::Tensor blurred = gaussian_blur(noisy(batch, stream), width).clamp(0.0, 1.0);
    return psnr(blurred, batch.image_bCHW()).mean().item<double>();
  };
  double best = 0.0;
  for (const double width : DenoiseBaselines::kWidths) {
    if (best == 0.0 ||
        quality(train, kBaselineNoise, width) > quality(train, kBaselineNoise, best)) {
      best = width;
    }
  }
  const BaselineScore blur = scores_of(baselines, valid)[1];
  EXPECT_EQ(blur.name, "gaussian_blur");
  EXPECT_EQ(blur.settings[0].value, best);
  EXPECT_EQ(blur.settings[1].value, 30);
  EXPECT_NEAR(blur.metrics[0].value, quality(valid, kEvaluationNoise, best), 1e-9);
}

// The conditional mean of jointly Gaussian images: mean + C_xy C_yy^-1 (y - mean).
TEST(DenoiseBaselines, LinearMmseIsItsClosedForm) {
  DenoiseBaselines baselines(kNoise, kShape, 8, torch::kCPU);
  const Batch train = smooth_images(0, 300), valid = smooth_images(300, 10);
  for (const int64_t first : {0, 120}) baselines.add(smooth_images(first, first == 0 ? 120 : 180));
  baselines.fit(*make_self_communicator());

  const torch::Tensor y = noisy(train, kBaselineNoise).flatten(1),
                      x = train.image_bCHW().flatten(1);
  const torch::Tensor mean_x = x.mean(0), mean_y = y.mean(0);
  torch::Tensor covariance_yy = (y - mean_y).t().matmul(y - mean_y) / 300;
  covariance_yy.diagonal() += LinearFit::kRidge * covariance_yy.diagonal().mean().item<double>();
  const torch::Tensor covariance_yx = (y - mean_y).t().matmul(x - mean_x) / 300;
  const torch::Tensor map = at::linalg_solve(covariance_yy, covariance_yx);
  const torch::Tensor seen = noisy(valid, kEvaluationNoise).flatten(1);
  const torch::Tensor image =
      (mean_x + (seen - mean_y).matmul(map)).clamp(0.0, 1.0).view({10, 1, 8, 8});
  const auto scores = scores_of(baselines, valid);
  ASSERT_THAT(score_names(scores),
              ElementsAre("noisy", "gaussian_blur", "patch_affine", "linear_mmse"));
  EXPECT_NEAR(scores[3].metrics[0].value, psnr(image, valid.image_bCHW()).mean().item<double>(),
              1e-6);
  // One patch is the whole image here.
  EXPECT_NEAR(scores[2].metrics[0].value, scores[3].metrics[0].value, 1e-9);
  EXPECT_GT(scores[3].metrics[0].value, scores[0].metrics[0].value + 5);
}

// Patches that are even inside: their mean is nearly the best of affine maps.
TEST(DenoiseBaselines, PatchAffineTakesTheMeanOfEvenPatches) {
  const DenoiseOptions noise{.sigma = 0.05, .clamp_noisy = false};
  const auto even = [](int64_t first, int64_t count) {
    Batch batch = smooth_images(first, count);
    const torch::Tensor grey =
        (torch::arange(count * 16, torch::kFloat64) * 0.37 + static_cast<double>(first)).sin();
    batch.image_bVCHW = (0.5 + 0.3 * grey)
                            .view({count, 1, 1, 4, 1, 4, 1})
                            .expand({count, 1, 1, 4, 2, 4, 2})
                            .reshape({count, 1, 1, 8, 8});
    return batch;
  };
  DenoiseBaselines baselines(noise, kShape, 2, torch::kCPU);
  baselines.add(even(0, 2000));
  baselines.fit(*make_self_communicator());
  const Batch valid = even(5000, 500);
  const torch::Tensor seen = add_noise(noise, valid.image_bCHW(), valid.context, kEvaluationNoise);
  const torch::Tensor mean = seen.view({500, 1, 4, 2, 4, 2}).mean({3, 5}, true);
  const torch::Tensor image = mean.expand({500, 1, 4, 2, 4, 2}).reshape({500, 1, 8, 8});
  const double of_mean = psnr(image.clamp(0.0, 1.0), valid.image_bCHW()).mean().item<double>();
  EXPECT_NEAR(scores_of(baselines, valid)[2].metrics[0].value, of_mean, 0.15);
}

TEST(DenoiseBaselines, LeaveOutMapsOfTooManyNumbers) {
  const DenoiseBaselines large(kNoise, {3, 64, 64}, 4, torch::kCPU);
  EXPECT_THAT(large.notes(), ElementsAre(HasSubstr("linear_mmse: left out, an image has 12288")));
  EXPECT_EQ(large.most_samples(), 10'000);
  EXPECT_THAT(DenoiseBaselines(kNoise, {3, 64, 64}, 64, torch::kCPU).notes().size(), 2u);
  const DenoiseBaselines small(kNoise, {3, 32, 32}, 4, torch::kCPU);
  EXPECT_THAT(small.notes(), IsEmpty());
  EXPECT_EQ(small.most_samples(), 40'000);
}

TEST(DenoiseBaselinesRanks, EqualThoseOfOneRank) {
  const auto scores = [](RankGrid& grid) {
    DenoiseBaselines baselines(kNoise, kShape, 4, torch::kCPU);
    const int64_t rank = grid.world->rank(), size = grid.world->size();
    // Rank 1 of two has a quarter of the images.
    const auto part = [&](int64_t first, int64_t count) {
      if (size == 1) return smooth_images(first, count);
      return rank == 0 ? smooth_images(first, count * 3 / 4)
                       : smooth_images(first + count * 3 / 4, count - count * 3 / 4);
    };
    baselines.add(part(0, 200));
    baselines.add(part(200, 1));  // none on rank 0
    baselines.fit(*grid.world);
    std::vector<double> values;
    for (const NamedSum& sum : baselines.evaluate(part(500, 8))) values.push_back(sum.sum);
    const torch::Tensor all = torch::tensor(values, torch::kFloat64);
    all_reduce(*grid.world, all);
    return all;
  };
  RankGrid self = testing::self_grid();
  const torch::Tensor expected = scores(self);
  ASSERT_EQ(expected.numel(), 8);
  testing::run_grid(2, 1, [&](RankGrid& grid) { EXPECT_LT(apart(scores(grid), expected), 1e-9); });
}

}  // namespace
}  // namespace shoal
