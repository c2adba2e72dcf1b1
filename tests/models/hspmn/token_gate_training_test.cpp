#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "models/hspmn/token_gate.h"
#include "tests/support/gradient_check.h"
#include "tests/support/some_gate.h"

// b sequences  S tokens
namespace shoal {
namespace {

using testing::apart;
using testing::some_numbers;

/// What a step of training leaves behind.
class TokenGateTraining : public testing::TokenGateTest {
 protected:
  static double parameter(TokenGate& gate, const std::string& name) {
    for (const Parameter& buffer : buffers_of(*gate)) {
      if (buffer.name == name) return buffer.tensor.item<double>();
    }
    return std::nan("");
  }
  static double share(const torch::Tensor& mask) {
    return mask.to(torch::kFloat64).mean().item<double>();
  }
};

TEST_F(TokenGateTraining, AnchorsAndPaddingCountInNoLossThresholdOrReport) {
  TokenGate gate = make([](GateOptions& options) {
    options.anchor_every = 4;
    options.noise = GateNoise::kNone;
  });
  const torch::Tensor position = torch::arange(64, torch::kInt64);
  const torch::Tensor is_token = position < torch::tensor({{40}, {64}}, torch::kInt64);
  const torch::Tensor is_counted = is_token & (position.remainder(4) != 0);
  const torch::Tensor logit = 2 * some_numbers({2, 64}, 1);
  const torch::Tensor wild = torch::where(is_counted, logit, torch::full_like(logit, 50));
  const OpenTokens tokens = open(gate, wild, {.training = true, .is_token = is_token});
  const torch::Tensor counted = logit.masked_select(is_counted);
  const double excess = counted.sigmoid().mean().item<double>() - 0.2;
  const double expected =
      0.1 * excess * excess + 0.01 * binary_entropy(counted).mean().item<double>();
  EXPECT_NEAR(tokens.auxiliary_loss.item<double>(), expected, 1e-15);
  gate->after_step();
  const torch::Tensor sorted = std::get<0>(counted.sort());
  const auto place = static_cast<int64_t>(0.8 * static_cast<double>(sorted.size(0)));
  EXPECT_NEAR(parameter(gate, "threshold"), sorted[place].item<double>(), 0.1);
  EXPECT_LT(parameter(gate, "noisy_threshold"), 10);
  const GateReport report = gate->report().value();
  EXPECT_NEAR(report.rate, share(counted > 0), 1e-15);
  EXPECT_NEAR(report.probability, counted.sigmoid().mean().item<double>(), 1e-15);
}

TEST_F(TokenGateTraining, MicroStepsAddUpAndASkippedStepLeavesNothing) {
  const auto no_draws = [](GateOptions& options) { options.noise = GateNoise::kNone; };
  const torch::Tensor logit = some_numbers({4, 32}, 1);
  TokenGate whole = make(no_draws);
  open(whole, logit, {.training = true});
  whole->after_step();
  TokenGate parts = make(no_draws);
  open(parts, logit + 7, {.training = true, .step = 999});  // skipped: no after_step
  open(parts, logit.narrow(0, 0, 1), {.training = true});
  open(parts, logit.narrow(0, 1, 3), {.training = true});
  parts->after_step();
  EXPECT_EQ(parameter(whole, "threshold"), parameter(parts, "threshold"));
  EXPECT_EQ(whole->report()->rate, parts->report()->rate);
  EXPECT_EQ(whole->report()->rate_by_position, parts->report()->rate_by_position);
  EXPECT_NEAR(whole->report()->entropy, parts->report()->entropy, 1e-15);
}

// A logit that is no number makes the loss one, so that the step is skipped; nothing ends.
TEST_F(TokenGateTraining, PassesOnWhatIsNoNumber) {
  TokenGate gate = make();
  torch::Tensor logit = some_numbers({2, 32}, 1);
  logit[0][3] = std::nan("");
  const OpenTokens tokens = open(gate, logit, {.training = true});
  EXPECT_TRUE(std::isnan(tokens.auxiliary_loss.item<double>()));
}

// First tokens of blocks have other logits than the rest.
TEST_F(TokenGateTraining, BlocksReachTheRateByTheirFirstTokens) {
  for (const int64_t anchor_every : {0, 8}) {
    TokenGate gate = make([&](GateOptions& options) {
      options.block = 4;
      options.anchor_every = anchor_every;
      options.noise = GateNoise::kNone;
    });
    torch::Tensor logit = some_numbers({32, 64}, 1);
    logit.slice(1, 0, 64, 4) += 5;
    open(gate, logit, {.training = true});
    gate->after_step();
    open(gate, logit, {.training = true, .step = 1001});
    gate->after_step();
    EXPECT_NEAR(gate->report()->rate, 0.2, 0.02) << anchor_every;
  }
}

TEST_F(TokenGateTraining, TopKRanksBlocksByTheirFirstTokens) {
  TokenGate gate = make([](GateOptions& options) {
    options.select = GateSelection::kTopK;
    options.block = 3;
    options.rate = options.first_rate = 0.5;
  });
  const torch::Tensor logit = torch::tensor({{0.1, 9.0, 8.0, 0.2, 0.0, 0.0}}, torch::kFloat64);
  EXPECT_EQ(places(open(gate, logit).is_open_bS), (std::vector<int64_t>{3, 4, 5}));
}

TEST_F(TokenGateTraining, TopKTakesTheShareOfEachSequencesTokens) {
  TokenGate gate = make(
      [](GateOptions& options) {
        options.select = GateSelection::kTopK;
        options.rate = options.first_rate = 0.29;
      },
      /*context=*/100);
  const torch::Tensor length_b1 = torch::tensor({{100}, {50}, {2}, {0}}, torch::kInt64);
  const torch::Tensor is_token = torch::arange(100, torch::kInt64) < length_b1;
  const torch::Tensor is_open =
      open(gate, some_numbers({4, 100}, 1), {.is_token = is_token}).is_open_bS;
  EXPECT_TRUE(is_open.sum(1).equal(torch::tensor({29, 14, 1, 0}, torch::kInt64))) << is_open.sum(1);
}

// While the rate is still high there is room for as many.
TEST_F(TokenGateTraining, CapacityFollowsTheAnnealedRate) {
  TokenGate gate = make(
      [](GateOptions& options) {
        options.capacity = 1.25;
        options.noise = GateNoise::kNone;
      },
      /*context=*/100);
  const torch::Tensor logit = torch::ones({1, 100}, torch::kFloat64);
  EXPECT_EQ(share(open(gate, logit, {.training = true, .step = 0}).is_open_bS), 1.0);
  EXPECT_EQ(share(open(gate, logit).is_open_bS), 0.25);
  open(gate, logit, {.training = true});
  gate->after_step();
  EXPECT_NEAR(gate->report()->dropped, 0.75, 1e-15);
}

TEST_F(TokenGateTraining, ARandomGateOpensAtItsRateAndTrainsNothing) {
  TokenGate gate = make(
      [](GateOptions& options) {
        options.select = GateSelection::kRandom;
        options.rate = options.first_rate = 0.3;
        options.explore_fraction = 0.5;
      },
      /*context=*/4000);
  EXPECT_TRUE(parameters_of(*gate).empty());
  const torch::Tensor logit = torch::zeros({1, 4000}, torch::kFloat64);
  const OpenTokens tokens = open(gate, logit, {.training = true});
  EXPECT_NEAR(share(tokens.is_open_bS), 0.3, 4 * std::sqrt(0.3 * 0.7 / 4000));
  EXPECT_FALSE(tokens.auxiliary_loss.defined());
  EXPECT_EQ(tokens.row_R.size(0), tokens.is_open_bS.sum().item<int64_t>());
  gate->after_step();
  EXPECT_NEAR(gate->report()->probability, 0.3, 1e-6);
}

TEST_F(TokenGateTraining, TheTemperatureIsLearnedWithinItsBounds) {
  for (const auto& [log_temperature, expected] :
       {std::pair{0.5, std::exp(0.5)}, {3.0, 2.0}, {-5.0, 0.1}}) {
    TokenGate gate = make([](GateOptions& options) {
      options.temperature = GateTemperature::kLearned;
      options.noise = GateNoise::kNone;
    });
    for (const Parameter& own : parameters_of(*gate)) {
      const torch::NoGradGuard no_grad;
      if (own.name == "log_temperature") own.tensor.fill_(log_temperature);
    }
    torch::Tensor logit = torch::full({1, 1}, 0.4, torch::kFloat64).requires_grad_();
    open(gate, logit, {.training = true}).weight_R.sum().backward();
    const double p = 1 / (1 + std::exp(-0.4 / expected));
    EXPECT_NEAR(logit.grad().item<double>(), p * (1 - p) / expected, 1e-15);
  }
}

TEST_F(TokenGateTraining, RefusesMoreTokensThanItsContext) {
  TokenGate gate = make([](GateOptions&) {}, /*context=*/16);
  EXPECT_THROW(open(gate, torch::zeros({1, 17}, torch::kFloat64)), c10::Error);
}

}  // namespace
}  // namespace shoal
