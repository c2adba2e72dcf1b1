#include "models/blocks/dropout.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using testing::some_numbers;

constexpr double kRate = 0.3;

StepContext step_with(int64_t first, int64_t samples, bool training = true) {
  StepContext step;
  step.seed = 5;
  step.step = 2;
  step.training = training;
  step.sample_b = torch::arange(first, first + samples, torch::kInt64);
  return step;
}

/// Factor of each sample's branch.
torch::Tensor factors(const DropPath& drop, const StepContext& step, torch::Dtype dtype) {
  return drop.forward(torch::ones({step.sample_b.size(0), 1}, dtype), step).squeeze(1);
}

TEST(DropPath, LeavesOutTheShareItWasToldAndDividesByTheRest) {
  constexpr int64_t kSamples = 20000;
  const torch::Tensor factor =
      factors(DropPath(kRate, "a"), step_with(0, kSamples), torch::kFloat64);
  const torch::Tensor kept = factor.masked_select(factor != 0);
  EXPECT_TRUE((kept == 1.0 / (1.0 - kRate)).all().item<bool>());
  const double left_out = 1.0 - static_cast<double>(kept.numel()) / kSamples;
  // Five standard deviations of the share of so many draws.
  EXPECT_NEAR(left_out, kRate, 5 * std::sqrt(kRate * (1 - kRate) / kSamples));
}

TEST(DropPath, ScalesWholeSamples) {
  const torch::Tensor x = some_numbers({8, 3, 5}, 1);
  const StepContext step = step_with(0, 8);
  const DropPath drop(kRate, "a");
  const torch::Tensor expected = x * factors(drop, step, torch::kFloat64).view({8, 1, 1});
  EXPECT_TRUE(drop.forward(x, step).equal(expected));
  EXPECT_FALSE(expected.equal(x));
}

TEST(DropPath, IsKeyedBySampleNotByRankOrBatch) {
  const DropPath drop(kRate, "a");
  const torch::Tensor whole = factors(drop, step_with(0, 64), torch::kFloat64);
  for (const auto& [first, count] : {std::pair{0, 24}, std::pair{24, 40}, std::pair{63, 1}}) {
    EXPECT_TRUE(factors(drop, step_with(first, count), torch::kFloat64)
                    .equal(whole.narrow(0, first, count)));
  }
}

TEST(DropPath, LeavesOutTheSameSamplesInEveryPrecision) {
  const DropPath drop(kRate, "a");
  const torch::Tensor narrow = factors(drop, step_with(0, 256), torch::kFloat32);
  const torch::Tensor wide = factors(drop, step_with(0, 256), torch::kFloat64);
  EXPECT_TRUE((narrow != 0).equal(wide != 0));
}

TEST(DropPath, DiffersByBranchStepSeedAndView) {
  const auto of = [](const std::string& path, const StepContext& step) {
    return factors(DropPath(kRate, path), step, torch::kFloat64);
  };
  const StepContext base = step_with(0, 256);
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
  EXPECT_TRUE(DropPath(kRate, "a").forward(x, step_with(0, 16, false)).is_same(x));
  EXPECT_TRUE(DropPath(0.0, "a").forward(x, step_with(0, 16)).is_same(x));
}

TEST(DropPath, GradientsAreThoseOfFiniteDifferences) {
  const torch::Tensor x = some_numbers({8, 3}, 1).requires_grad_();
  const StepContext step = step_with(0, 8);
  const DropPath drop(kRate, "a");
  EXPECT_LT(testing::gradient_error([&] { return drop.forward(x, step); }, {x}), 1e-6);
}

TEST(DropPath, TakesNoSamples) {
  EXPECT_EQ(DropPath(kRate, "a").forward(some_numbers({0, 3, 4}, 1), step_with(0, 0)).sizes(),
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
