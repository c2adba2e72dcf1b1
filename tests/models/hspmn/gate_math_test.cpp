#include "models/hspmn/gate_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <vector>

#include "models/hspmn/gate_options.h"
#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using testing::apart;
using testing::gradient_error;
using testing::some_numbers;

torch::Tensor row(std::initializer_list<double> values) {
  return torch::tensor(std::vector<double>(values), torch::kFloat64);
}

GateSums sum_all(const torch::Tensor& logit) {
  return sum_gates(logit, torch::ones_like(logit, torch::kBool));
}

torch::Tensor sums_of(const torch::Tensor& logit) {
  const GateSums sums = sum_all(logit.detach());
  return torch::stack({sums.probability, sums.count});
}

// Figures of the specification: one Gumbel draw, temperature 0.7.
TEST(GateMath, OpensWithThePublishedNoise) {
  const torch::Tensor logit = row({-1, 0, 0.5}).requires_grad_();
  const torch::Tensor noise = -(-row({0.1, 0.5, 0.9}).log()).log();
  const torch::Tensor soft = soft_gate(logit, noise, torch::full({1}, 0.7, torch::kFloat64));
  EXPECT_LT(apart(soft, row({0.0678594, 0.6279868, 0.9807177})), 5e-8);
  const torch::Tensor gate = straight_through(soft, soft.detach() > 0.5);
  EXPECT_TRUE(gate.detach().equal(row({0, 1, 1})));
  gate.sum().backward();
  EXPECT_LT(apart(logit.grad(), row({0.0903635, 0.3337420, 0.0270150})), 5e-8);
}

TEST(GateMath, LossesAreTheSpecifications) {
  const torch::Tensor logit = row({-2, -1, 0, 1, 2}).requires_grad_();
  EXPECT_NEAR(binary_entropy(logit).mean().item<double>(), 0.5176442217, 5e-11);
  const torch::Tensor loss = gate_loss(sum_all(logit), sums_of(logit), 0.2, {0.1, 0.01});
  EXPECT_NEAR(loss.item<double>(), 0.0141764422, 5e-11);
  loss.backward();
  EXPECT_LT(
      apart(logit.grad(), row({0.0016798974, 0.0027525671, 0.003, 0.0019661193, 0.0008399487})),
      5e-11);
}

// A mean of each rank's own, squared and then averaged, would be another loss.
TEST(GateMath, RanksSharesAddUpToTheLossOfAllTokens) {
  const torch::Tensor all = 3 * some_numbers({11}, 1);
  const auto of_all = [&](const torch::Tensor& logit) {
    const torch::Tensor mean = logit.sigmoid().mean() - 0.3;
    return 0.1 * mean * mean + 0.01 * binary_entropy(logit).mean();
  };
  torch::Tensor whole = all.clone().requires_grad_();
  of_all(whole).backward();
  torch::Tensor parts = all.clone().requires_grad_();
  torch::Tensor sum = torch::zeros({}, torch::kFloat64);
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 4}, {4, 0}, {4, 7}}) {
    sum = sum + gate_loss(sum_all(parts.narrow(0, first, count)), sums_of(all), 0.3, {0.1, 0.01});
  }
  sum.backward();
  EXPECT_NEAR(sum.item<double>(), of_all(all).item<double>(), 1e-16);
  EXPECT_LT(apart(parts.grad(), whole.grad()), 1e-17);
}

TEST(GateMath, LeavesOutWhatDoesNotCount) {
  const torch::Tensor logit = row({-2, std::nan(""), 1, 900}).requires_grad_();
  const torch::Tensor is_counted = torch::tensor({true, false, true, false});
  const GateSums sums = sum_gates(logit, is_counted);
  const GateSums expected = sum_all(row({-2, 1}));
  EXPECT_EQ(sums.probability.item<double>(), expected.probability.item<double>());
  EXPECT_EQ(sums.entropy.item<double>(), expected.entropy.item<double>());
  EXPECT_EQ(sums.count.item<double>(), 2);
  (sums.probability + sums.entropy).backward();
  EXPECT_TRUE(logit.grad().isfinite().all().item<bool>());
  EXPECT_EQ(logit.grad()[3].item<double>(), 0);
}

TEST(GateMath, EntropyIsFiniteForSureGates) {
  const torch::Tensor logit = row({-800, -40, 40, 800}).requires_grad_();
  const torch::Tensor entropy = binary_entropy(logit);
  EXPECT_TRUE(entropy.isfinite().all().item<bool>());
  EXPECT_LT(entropy.max().item<double>(), 1e-15);
  entropy.sum().backward();
  EXPECT_TRUE(logit.grad().isfinite().all().item<bool>());
  const torch::Tensor some = (4 * some_numbers({6}, 1)).requires_grad_();
  EXPECT_LT(gradient_error([&] { return binary_entropy(some); }, {some}), 1e-7);
}

TEST(GateOptions, RateFallsInEqualSteps) {
  GateOptions options;
  options.rate = 0.2;
  options.first_rate = 0.8;
  options.anneal_steps = 100;
  EXPECT_DOUBLE_EQ(options.rate_at(0), 0.8);
  EXPECT_DOUBLE_EQ(options.rate_at(25), 0.65);
  EXPECT_DOUBLE_EQ(options.rate_at(50), 0.5);
  EXPECT_DOUBLE_EQ(options.rate_at(100), 0.2);
  EXPECT_DOUBLE_EQ(options.rate_at(500), 0.2);
  options.anneal_steps = 0;
  EXPECT_DOUBLE_EQ(options.rate_at(0), 0.2);
}

torch::Tensor count_all(const torch::Tensor& logits) {
  return LogitHistogram::count(logits, torch::ones_like(logits, torch::kBool));
}

TEST(LogitHistogram, FindsQuantilesWithinABin) {
  const torch::Tensor logits = 5 * some_numbers({5000}, 1);
  const torch::Tensor sorted = std::get<0>(logits.sort());
  const torch::Tensor counts = count_all(logits);
  for (const double share : {0.01, 0.2, 0.5, 0.8, 0.999}) {
    const double exact = sorted[static_cast<int64_t>(share * 5000)].item<double>();
    EXPECT_NEAR(LogitHistogram::quantile(counts, share).item<double>(), exact, 0.05) << share;
  }
}

TEST(LogitHistogram, LeavesOutWhatDoesNotCountAndWhatIsNoNumber) {
  const torch::Tensor logits = row({1, 2, std::nan(""), 3, INFINITY});
  const torch::Tensor is_counted = torch::tensor({true, false, true, true, true});
  EXPECT_TRUE(LogitHistogram::count(logits, is_counted).equal(count_all(row({1, 3, 1e30}))));
}

TEST(LogitHistogram, CountsOfRanksAddUp) {
  const torch::Tensor logits = 5 * some_numbers({100}, 1);
  const torch::Tensor parts =
      count_all(logits.narrow(0, 0, 30)) + count_all(logits.narrow(0, 30, 70));
  EXPECT_TRUE(parts.equal(count_all(logits)));
}

TEST(LogitHistogram, TakesLogitsOutsideItsRange) {
  const torch::Tensor counts = count_all(row({-1e30, -20, 0, 20, 1e30}));
  EXPECT_EQ(counts.sum().item<double>(), 5);
  EXPECT_NEAR(LogitHistogram::quantile(counts, 0.3).item<double>(), -20, 0.2);
  EXPECT_GT(LogitHistogram::quantile(counts, 0.9).item<double>(), 1e5);
  EXPECT_LT(LogitHistogram::quantile(counts, 0.0).item<double>(), -1e5);
}

// Tokens of equal context have equal logits: no more than the wanted rate is above the threshold.
TEST(LogitHistogram, OfEqualLogitsAllAreBelowTheQuantile) {
  const torch::Tensor logits = torch::cat({torch::full({70}, 3.0), torch::full({30}, 5.0)});
  const torch::Tensor counts = count_all(logits);
  const double wide = LogitHistogram::quantile(counts, 0.5).item<double>();
  EXPECT_GT(wide, 3.0);
  EXPECT_LT(wide, 3.1);
  EXPECT_GT(LogitHistogram::quantile(counts, 0.75).item<double>(), 5.0);
}

TEST(LogitHistogram, KnowsNoQuantileOfNothing) {
  EXPECT_TRUE(
      std::isnan(LogitHistogram::quantile(count_all(torch::empty({0})), 0.5).item<double>()));
}

}  // namespace
}  // namespace shoal
