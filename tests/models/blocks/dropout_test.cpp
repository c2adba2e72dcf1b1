#include "models/blocks/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using testing::some_numbers;

constexpr double kDropoutRate = 0.3;

StepContext dropout_step(int64_t first, int64_t samples, bool training = true) {
  StepContext step;
  step.seed = 5;
  step.step = 2;
  step.training = training;
  step.sample_b = torch::arange(first, first + samples, torch::kInt64);
  return step;
}

torch::Tensor dropout_factors(const Dropout& dropout, const StepContext& step,
                              torch::Dtype dtype = torch::kFloat64) {
  return dropout.forward(torch::ones({step.sample_b.size(0), 6, 10}, dtype), step);
}

TEST(Dropout, ZeroesTheShareItWasToldAndDividesTheRest) {
  constexpr int64_t kSamples = 1000;
  const torch::Tensor factor =
      dropout_factors(Dropout(kDropoutRate, "a"), dropout_step(0, kSamples));
  const torch::Tensor kept = factor.masked_select(factor != 0);
  EXPECT_TRUE((kept == 1.0 / (1.0 - kDropoutRate)).all().item<bool>());
  const auto deviation = [](int64_t draws) {
    return std::sqrt(kDropoutRate * (1 - kDropoutRate) / static_cast<double>(draws));
  };
  const auto share = (factor == 0).to(torch::kFloat64);
  EXPECT_NEAR(share.mean().item<double>(), kDropoutRate, 5 * deviation(factor.numel()));
  // Each place of a sample by itself, and neighbours independently.
  EXPECT_LT((share.mean(0) - kDropoutRate).abs().max().item<double>(), 5 * deviation(kSamples));
  const torch::Tensor both = share.narrow(2, 0, 9) * share.narrow(2, 1, 9);
  EXPECT_NEAR(both.mean().item<double>(), kDropoutRate * kDropoutRate, 0.01);
}

TEST(Dropout, IsKeyedBySampleNotByRankOrBatch) {
  const Dropout dropout(kDropoutRate, "a");
  const torch::Tensor whole = dropout_factors(dropout, dropout_step(0, 64));
  for (const auto& [first, count] : {std::pair{0, 24}, std::pair{24, 40}, std::pair{63, 1}}) {
    EXPECT_TRUE(
        dropout_factors(dropout, dropout_step(first, count)).equal(whole.narrow(0, first, count)));
  }
}

TEST(Dropout, IsIndependentOfPadding) {
  const Dropout dropout(kDropoutRate, "a");
  StepContext step = dropout_step(3, 4);
  step.length_b = torch::full({4}, 5, torch::kInt64);
  const torch::Tensor row = dropout.is_dropped({4, 5, 10}, step);
  EXPECT_TRUE(dropout.is_dropped({4, 8, 10}, step).narrow(1, 0, 5).equal(row));
  const torch::Tensor pair = dropout.is_dropped({4, 2, 5, 5}, step);  // of an attention's heads
  EXPECT_TRUE(dropout.is_dropped({4, 2, 8, 8}, step).narrow(2, 0, 5).narrow(3, 0, 5).equal(pair));
  EXPECT_FALSE(pair.select(1, 0).equal(pair.select(1, 1)));
}

TEST(Dropout, ZeroesTheSameInEveryPrecision) {
  const Dropout dropout(kDropoutRate, "a");
  const torch::Tensor expected = dropout_factors(dropout, dropout_step(0, 16)) == 0;
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    EXPECT_TRUE((dropout_factors(dropout, dropout_step(0, 16), dtype) == 0).equal(expected));
  }
}

TEST(Dropout, DrawsAnewForEachPlaceStepAndSeed) {
  const torch::Tensor first = dropout_factors(Dropout(kDropoutRate, "a"), dropout_step(0, 16));
  EXPECT_FALSE(dropout_factors(Dropout(kDropoutRate, "b"), dropout_step(0, 16)).equal(first));
  StepContext other = dropout_step(0, 16);
  ++other.step;
  EXPECT_FALSE(dropout_factors(Dropout(kDropoutRate, "a"), other).equal(first));
  other = dropout_step(0, 16);
  ++other.seed;
  EXPECT_FALSE(dropout_factors(Dropout(kDropoutRate, "a"), other).equal(first));
}

TEST(Dropout, ActsInTrainingAlone) {
  const torch::Tensor x = some_numbers({3, 4, 5}, 1);
  EXPECT_TRUE(Dropout(kDropoutRate, "a").forward(x, dropout_step(0, 3, false)).is_same(x));
  EXPECT_TRUE(Dropout(0.0, "a").forward(x, dropout_step(0, 3)).is_same(x));
}

TEST(Dropout, GradientIsThatOfFiniteDifferences) {
  const torch::Tensor x = some_numbers({3, 4, 5}, 1).requires_grad_();
  const Dropout dropout(kDropoutRate, "a");
  EXPECT_LT(testing::gradient_error([&] { return dropout.forward(x, dropout_step(0, 3)); }, {x}),
            1e-6);
}

TEST(Dropout, RefusesWhatIsNoRateAndOtherSamples) {
  EXPECT_THROW(Dropout(1.0, "a"), c10::Error);
  EXPECT_THROW(Dropout(kDropoutRate, "a").forward(some_numbers({3, 4}, 1), dropout_step(0, 2)),
               c10::Error);
}

/// Factor of each sample's branch.
torch::Tensor drop_path_factors(const DropPath& drop, const StepContext& step, torch::Dtype dtype) {
  return drop.forward(torch::ones({step.sample_b.size(0), 1}, dtype), step).squeeze(1);
}

TEST(DropPath, LeavesOutTheShareItWasToldAndDividesByTheRest) {
  constexpr int64_t kSamples = 20000;
  const torch::Tensor factor =
      drop_path_factors(DropPath(kDropoutRate, "a"), dropout_step(0, kSamples), torch::kFloat64);
  const torch::Tensor kept = factor.masked_select(factor != 0);
  EXPECT_TRUE((kept == 1.0 / (1.0 - kDropoutRate)).all().item<bool>());
  const double left_out = 1.0 - static_cast<double>(kept.numel()) / kSamples;
  // Five standard deviations of the share of so many draws.
  EXPECT_NEAR(left_out, kDropoutRate, 5 * std::sqrt(kDropoutRate * (1 - kDropoutRate) / kSamples));
}

TEST(DropPath, ScalesWholeSamples) {
  const torch::Tensor x = some_numbers({8, 3, 5}, 1);
  const StepContext step = dropout_step(0, 8);
  const DropPath drop(kDropoutRate, "a");
  const torch::Tensor expected = x * drop_path_factors(drop, step, torch::kFloat64).view({8, 1, 1});
  EXPECT_TRUE(drop.forward(x, step).equal(expected));
  EXPECT_FALSE(expected.equal(x));
}

TEST(DropPath, IsKeyedBySampleNotByRankOrBatch) {
  const DropPath drop(kDropoutRate, "a");
  const torch::Tensor whole = drop_path_factors(drop, dropout_step(0, 64), torch::kFloat64);
  for (const auto& [first, count] : {std::pair{0, 24}, std::pair{24, 40}, std::pair{63, 1}}) {
    EXPECT_TRUE(drop_path_factors(drop, dropout_step(first, count), torch::kFloat64)
                    .equal(whole.narrow(0, first, count)));
  }
}

TEST(DropPath, LeavesOutTheSameSamplesInEveryPrecision) {
  const DropPath drop(kDropoutRate, "a");
  const torch::Tensor narrow = drop_path_factors(drop, dropout_step(0, 256), torch::kFloat32);
  const torch::Tensor wide = drop_path_factors(drop, dropout_step(0, 256), torch::kFloat64);
  EXPECT_TRUE((narrow != 0).equal(wide != 0));
}

TEST(DropPath, DiffersByBranchStepSeedAndView) {
  const auto of = [](const std::string& path, const StepContext& step) {
    return drop_path_factors(DropPath(kDropoutRate, path), step, torch::kFloat64);
  };
  const StepContext base = dropout_step(0, 256);
  const torch::Tensor factor = of("blocks.0.mlp", base);
  StepContext later = base, reseeded = base, other_view = base;
  later.step = 3;
  reseeded.seed = 6;
  other_view.view_b = torch::ones_like(base.sample_b);
  EXPECT_FALSE(of("blocks.1.mlp", base).equal(factor));
  EXPECT_FALSE(of("blocks.0.mlp", later).equal(factor));
  EXPECT_FALSE(of("blocks.0.mlp", reseeded).equal(factor));
  EXPECT_FALSE(of("blocks.0.mlp", other_view).equal(factor));
  EXPECT_TRUE(of("blocks.0.mlp", base).equal(factor));
}

TEST(DropPath, DoesNothingInEvaluationOrAtRateZero) {
  const torch::Tensor x = some_numbers({16, 3}, 1);
  EXPECT_TRUE(DropPath(kDropoutRate, "a").forward(x, dropout_step(0, 16, false)).is_same(x));
  EXPECT_TRUE(DropPath(0.0, "a").forward(x, dropout_step(0, 16)).is_same(x));
}

TEST(DropPath, GradientsAreThoseOfFiniteDifferences) {
  const torch::Tensor x = some_numbers({8, 3}, 1).requires_grad_();
  const StepContext step = dropout_step(0, 8);
  const DropPath drop(kDropoutRate, "a");
  EXPECT_LT(testing::gradient_error([&] { return drop.forward(x, step); }, {x}), 1e-6);
}

TEST(DropPath, TakesNoSamples) {
  EXPECT_EQ(
      DropPath(kDropoutRate, "a").forward(some_numbers({0, 3, 4}, 1), dropout_step(0, 0)).sizes(),
      (at::IntArrayRef{0, 3, 4}));
}

TEST(DropPath, RatesRiseEvenlyFromZero) {
  EXPECT_EQ(drop_path_rate(0.1, 0, 5), 0.0);
  EXPECT_DOUBLE_EQ(drop_path_rate(0.1, 1, 5), 0.025);
  EXPECT_DOUBLE_EQ(drop_path_rate(0.1, 4, 5), 0.1);
  EXPECT_EQ(drop_path_rate(0.1, 0, 1), 0.1);
}

TEST(DropPath, RefusesRatesThatLeaveNothing) { EXPECT_THROW(DropPath(1.0, "a"), c10::Error); }

}  // namespace
}  // namespace shoal
