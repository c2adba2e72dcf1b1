#include "models/moco/sync_batch_norm.h"

#include <ATen/ops/batch_norm.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <vector>

#include "tests/support/gradient_check.h"
#include "tests/support/thread_communicator.h"

// b rows on this rank  D features
namespace shoal {
namespace {

using testing::apart;
using testing::gradient_error;
using testing::run_ranks;
using testing::some_numbers;
using torch::Tensor;

constexpr double kStatisticsRounding = 1e-12;
constexpr int64_t kRows = 7, kFeatures = 3;

SyncBatchNorm make_norm(Communicator& world, bool is_affine = true) {
  SyncBatchNorm norm(kFeatures, is_affine, torch::TensorOptions(torch::kFloat64), &world);
  norm->running_mean.zero_();
  norm->running_var.fill_(1);
  if (is_affine) {
    const torch::NoGradGuard no_grad;
    norm->weight.copy_(some_numbers({kFeatures}, 5));
    norm->bias.copy_(some_numbers({kFeatures}, 6));
  }
  return norm;
}

/// Far from 0, where a difference of squares would lose digits.
Tensor rows() { return some_numbers({kRows, kFeatures}, 1) + 100; }

/// Output, gradients of x, weight and bias, running mean and variance of LibTorch's own.
std::vector<Tensor> expected_of(const Tensor& x) {
  const auto alone = make_self_communicator();
  SyncBatchNorm norm = make_norm(*alone);
  const Tensor in = x.detach().clone().requires_grad_();
  const Tensor y = at::batch_norm(in, norm->weight, norm->bias, norm->running_mean,
                                  norm->running_var, /*training=*/true, 0.1, 1e-5, false);
  std::vector<Tensor> results = torch::autograd::grad({(y * some_numbers(y.sizes(), 2)).sum()},
                                                      {in, norm->weight, norm->bias});
  results.insert(results.begin(), y.detach());
  results.push_back(norm->running_mean);
  results.push_back(norm->running_var);
  return results;
}

// Shares of the rows: all, two ranks, four of which one has none and one a single row.
TEST(SyncBatchNormRanks, IsThatOfAllRowsForwardAndBackward) {
  const Tensor x = rows(), scale = some_numbers(x.sizes(), 2);
  const std::vector<Tensor> expected = expected_of(x);
  for (const std::vector<int64_t>& begin :
       {std::vector<int64_t>{0, 7}, std::vector<int64_t>{0, 3, 7},
        std::vector<int64_t>{0, 1, 1, 4, 7}}) {
    const auto ranks = static_cast<int>(begin.size()) - 1;
    std::vector<Tensor> weight_grads(static_cast<size_t>(ranks)), bias_grads = weight_grads;
    run_ranks(ranks, [&](Communicator& world) {
      const auto rank = static_cast<size_t>(world.rank());
      const int64_t first = begin[rank], count = begin[rank + 1] - first;
      SyncBatchNorm norm = make_norm(world);
      const Tensor own = x.narrow(0, first, count).clone().requires_grad_();
      const Tensor y = norm->forward(own, /*is_training=*/true);
      const auto grads = torch::autograd::grad({(y * scale.narrow(0, first, count)).sum()},
                                               {own, norm->weight, norm->bias});
      EXPECT_LE(apart(y, expected[0].narrow(0, first, count)), 1e-9);
      EXPECT_LE(apart(grads[0], expected[1].narrow(0, first, count)), 1e-9);
      weight_grads[rank] = grads[1];
      bias_grads[rank] = grads[2];
      EXPECT_LE(apart(norm->running_mean, expected[4]), kStatisticsRounding);
      EXPECT_LE(apart(norm->running_var, expected[5]), kStatisticsRounding);
    });
    EXPECT_LE(apart(torch::stack(weight_grads).sum(0), expected[2]), 1e-9);
    EXPECT_LE(apart(torch::stack(bias_grads).sum(0), expected[3]), kStatisticsRounding);
  }
}

TEST(SyncBatchNorm, GradientsAreThoseOfFiniteDifferences) {
  const auto alone = make_self_communicator();
  SyncBatchNorm norm = make_norm(*alone);
  const Tensor x = some_numbers({kRows, kFeatures}, 1).requires_grad_();
  EXPECT_LE(gradient_error([&] { return norm->forward(x, true); }, {x, norm->weight, norm->bias}),
            1e-6);
}

TEST(SyncBatchNorm, EvaluatesByTheRunningStatistics) {
  const auto alone = make_self_communicator();
  SyncBatchNorm norm = make_norm(*alone, /*is_affine=*/false);
  EXPECT_FALSE(norm->weight.defined());
  norm->running_mean.fill_(2);
  norm->running_var.fill_(4);
  const Tensor y = norm->forward(torch::full({1, kFeatures}, 6.0, torch::kFloat64), false);
  EXPECT_NEAR(y[0][0].item<double>(), 4 / std::sqrt(4 + 1e-5), kStatisticsRounding);
}

TEST(SyncBatchNorm, KeepsItsStatisticsWhereABatchIsNotFinite) {
  const auto alone = make_self_communicator();
  SyncBatchNorm norm = make_norm(*alone);
  Tensor x = rows();
  x[0][1] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(norm->forward(x, true).isnan().any().item<bool>());
  EXPECT_TRUE(norm->running_mean.eq(0).all().item<bool>());
  EXPECT_TRUE(norm->running_var.eq(1).all().item<bool>());
}

TEST(SyncBatchNormRanks, KeepTheirStatisticsWhereTheRowsOfOneAreNotFinite) {
  run_ranks(3, [](Communicator& world) {
    SyncBatchNorm norm = make_norm(world);
    Tensor x = rows();
    if (world.rank() == 1) x[0][1] = std::numeric_limits<double>::infinity();
    norm->forward(x, true);
    EXPECT_TRUE(norm->running_mean.eq(0).all().item<bool>()) << world.rank();
    EXPECT_TRUE(norm->running_var.eq(1).all().item<bool>()) << world.rank();
  });
}

}  // namespace
}  // namespace shoal
