#include "models/hspmn/token_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"
#include "tests/support/some_batch.h"
#include "tests/support/some_gate.h"

// b sequences  S tokens  D width
namespace shoal {
namespace {

using testing::some_numbers;
using testing::some_step;
using testing::TokenGateTest;

using Places = std::vector<int64_t>;
const torch::Tensor kSix = torch::tensor({{0.9, 0.1, 0.8, 0.3, 0.95, 0.2}}, torch::kFloat64);

// With top k a token's choice changes as its sequence grows; with a threshold it does not.
TEST_F(TokenGateTest, OnlyAThresholdKeepsItsChoiceAsTheSequenceGrows) {
  TokenGate by_threshold = make();
  set(by_threshold, "threshold", 0.85);
  TokenGate by_number = make([](GateOptions& options) {
    options.select = GateSelection::kTopK;
    options.rate = options.first_rate = 1.0 / 3;
  });
  const std::vector<Places> best{{0}, {0}, {4}, {0, 4}}, above{{0}, {0}, {0, 4}, {0, 4}};
  for (int64_t n = 3; n <= 6; ++n) {
    const torch::Tensor prefix = kSix.narrow(1, 0, n);
    EXPECT_EQ(places(open(by_number, prefix).is_open_bS), best[static_cast<size_t>(n - 3)]);
    EXPECT_EQ(places(open(by_threshold, prefix).is_open_bS), above[static_cast<size_t>(n - 3)]);
  }
}

TEST_F(TokenGateTest, OfEqualLogitsTheEarlierTokensAreTheBest) {
  TokenGate gate = make([](GateOptions& options) {
    options.select = GateSelection::kTopK;
    options.rate = options.first_rate = 0.5;
  });
  EXPECT_EQ(places(open(gate, torch::zeros({1, 6}, torch::kFloat64)).is_open_bS),
            (Places{0, 1, 2}));
}

TEST_F(TokenGateTest, AnchorsAttendWhateverTheirGateAndGetNoGradient) {
  TokenGate gate = make([](GateOptions& options) {
    options.anchor_every = 3;
    options.noise = GateNoise::kNone;
  });
  set(gate, "noisy_threshold", 0.85);
  torch::Tensor logit = kSix.clone().requires_grad_();
  const OpenTokens tokens = open(gate, logit, {.training = true});
  EXPECT_EQ(places(tokens.is_open_bS), (Places{0, 3, 4}));
  EXPECT_TRUE(tokens.weight_R.detach().equal(torch::ones({3}, torch::kFloat64)));
  tokens.weight_R.sum().backward();
  EXPECT_EQ(logit.grad()[0][0].item<double>(), 0);
  EXPECT_EQ(logit.grad()[0][3].item<double>(), 0);
  const double p = 1 / (1 + std::exp(0.85 - 0.95));
  EXPECT_NEAR(logit.grad()[0][4].item<double>(), p * (1 - p), 1e-15);
}

TEST_F(TokenGateTest, CapacityKeepsTheFirstOpenTokensAndAllAnchors) {
  TokenGate gate = make(
      [](GateOptions& options) {
        options.rate = 0.5;
        options.capacity = 1.0;  // 6 of 12 tokens, 2 of them anchors
        options.anchor_every = 6;
      },
      /*context=*/12);
  const torch::Tensor all_open = torch::ones({1, 12}, torch::kFloat64);
  EXPECT_EQ(places(open(gate, all_open).is_open_bS), (Places{0, 1, 2, 3, 4, 6}));
}

TEST_F(TokenGateTest, ABlockFollowsItsFirstToken) {
  TokenGate gate = make([](GateOptions& options) { options.block = 2; });
  set(gate, "threshold", 0.85);
  EXPECT_EQ(places(open(gate, kSix).is_open_bS), (Places{0, 1, 4, 5}));
}

TEST_F(TokenGateTest, PaddingNeverAttends) {
  for (const GateSelection select : {GateSelection::kThreshold, GateSelection::kTopK}) {
    TokenGate gate = make([&](GateOptions& options) {
      options.select = select;
      options.rate = options.first_rate = 0.5;
    });
    const torch::Tensor is_token = torch::tensor({{true, true, true, true, false, false}});
    const OpenTokens tokens = open(gate, kSix, {.is_token = is_token});
    EXPECT_EQ(places(tokens.is_open_bS),
              select == GateSelection::kTopK ? (Places{0, 2}) : (Places{0, 1, 2, 3}));
  }
}

// Token by token, in pieces, and at once.
TEST_F(TokenGateTest, DecodesAsItReadsAtOnce) {
  const torch::Tensor logit = some_numbers({3, 23}, 4);
  const std::vector<Change> changes{
      [](GateOptions&) {},
      [](GateOptions& options) { options.block = 4; },
      [](GateOptions& options) {
        options.capacity = 1.0;
        options.anchor_every = 9;
      },
      [](GateOptions& options) {
        options.capacity = 1.2;
        options.block = 3;
        options.anchor_every = 8;
      },
      [](GateOptions& options) { options.select = GateSelection::kPredictor; },
      [](GateOptions& options) { options.select = GateSelection::kRandom; }};
  for (size_t i = 0; i < changes.size(); ++i) {
    TokenGate gate = make(changes[i], /*context=*/23);
    const torch::Tensor expected = open(gate, logit).is_open_bS;
    for (const int64_t piece : {1, 2, 5}) {
      const GateState state = gate->make_state(3);
      std::vector<torch::Tensor> parts;
      for (int64_t first = 0; first < 23; first += piece) {
        const torch::Tensor part = logit.narrow(1, first, std::min(piece, 23 - first));
        Pass pass{.first = first, .state = state};
        parts.push_back(open(gate, part, pass).is_open_bS);
      }
      EXPECT_TRUE(torch::cat(parts, 1).equal(expected)) << i << " in pieces of " << piece;
    }
  }
}

TEST_F(TokenGateTest, PaddingOfAPieceChangesNoState) {
  TokenGate gate = make([](GateOptions& options) {
    options.block = 2;
    options.capacity = 2;
  });
  const torch::Tensor is_token = torch::tensor({{true, false}, {false, false}, {true, true}});
  const GateState state = torch::tensor({{0, 3}, {1, 5}, {0, 0}}, torch::kInt64);
  open(gate, torch::ones({3, 2}, torch::kFloat64), {.state = state, .is_token = is_token});
  EXPECT_TRUE(state.equal(torch::tensor({{1, 4}, {1, 5}, {1, 2}}, torch::kInt64))) << state;
}

TEST_F(TokenGateTest, LogisticNoiseOpensWithTheProbabilityThatTheLossCounts) {
  for (const auto& [noise, expected] :
       {std::pair{GateNoise::kLogistic, 0.119203}, {GateNoise::kGumbel, 0.126577}}) {
    TokenGate gate = make([&](GateOptions& options) { options.noise = noise; }, /*context=*/4096);
    const torch::Tensor logit = torch::full({8, 4096}, -2.0, torch::kFloat64);
    const double rate =
        open(gate, logit, {.training = true}).is_open_bS.to(torch::kFloat64).mean().item<double>();
    EXPECT_NEAR(rate, expected, 4 * std::sqrt(0.12 * 0.88 / (8 * 4096)));
  }
}

TEST_F(TokenGateTest, EvaluatesWithoutNoise) {
  TokenGate gate = make();
  EXPECT_EQ(places(open(gate, kSix - 0.5).is_open_bS), (Places{0, 2, 4}));
  EXPECT_FALSE(open(gate, kSix).auxiliary_loss.defined());
  EXPECT_FALSE(open(gate, kSix).weight_R.defined());
}

TEST_F(TokenGateTest, ExploredTokensAreComputedWithWeightZeroAndAGradient) {
  TokenGate gate = make(
      [](GateOptions& options) {
        options.explore_fraction = 0.25;
        options.noise = GateNoise::kNone;
      },
      /*context=*/500);
  torch::Tensor logit = (some_numbers({4, 500}, 1) - 2).requires_grad_();  // none is open
  const OpenTokens tokens = open(gate, logit, {.training = true});
  EXPECT_FALSE(tokens.is_open_bS.any().item<bool>());
  const auto count = static_cast<double>(tokens.row_R.size(0));
  EXPECT_NEAR(count, 500, 4 * std::sqrt(2000 * 0.25 * 0.75));
  EXPECT_EQ(tokens.offset_b1.back(), tokens.row_R.size(0));
  EXPECT_TRUE(tokens.weight_R.detach().equal(torch::zeros_like(tokens.weight_R)));
  tokens.weight_R.sum().backward();
  EXPECT_EQ((logit.grad() != 0).sum().item<int64_t>(), tokens.row_R.size(0));
}

// After a step the wanted share of its logits is above the threshold; noise has one of its own.
TEST_F(TokenGateTest, TheThresholdFollowsTheQuantileOfAllRanks) {
  const torch::Tensor logit = 2 * some_numbers({8, 400}, 1);
  const auto thresholds = [&](int64_t ranks) {
    std::vector<double> found;
    testing::run_grid(1, ranks, [&](RankGrid& grid) {
      GateOptions options;
      options.anchor_every = 0;
      const BuildContext build{&grid, torch::TensorOptions().dtype(torch::kFloat64)};
      TokenGate gate(options, 1, 400, "blocks.0.gate", build);
      {
        const torch::NoGradGuard no_grad;
        for (const Parameter& parameter : parameters_of(*gate)) {
          parameter.tensor.fill_(parameter.name == "weight" ? 1.0 : 0.0);
        }
        for (const Parameter& buffer : buffers_of(*gate)) buffer.tensor.zero_();
      }
      const int64_t own = 8 / ranks, first = grid.world->rank() * own;
      for (int64_t i = 0; i < 2; ++i) {
        StepContext step = some_step(own, /*training=*/true);
        step.step = 200 + i;
        step.sample_b = torch::arange(first, first + own, torch::kInt64);
        step.samples_in_step = step.samples_in_micro = 8;
        const torch::Tensor u = (logit.narrow(0, first, own) + i).unsqueeze(2);
        const torch::Tensor position = torch::arange(400, torch::kInt64).expand({own, 400});
        gate->open({u, position, torch::Tensor(), step});
        gate->after_step();
      }
      if (grid.world->rank() != 0) return;
      for (const Parameter& buffer : buffers_of(*gate)) {
        found.push_back(buffer.tensor.item<double>());
      }
      EXPECT_GT(gate->report()->rate, 0.2);  // the second step's logits are higher
    });
    return found;
  };
  const std::vector<double> one = thresholds(1);
  const torch::Tensor sorted = std::get<0>(logit.flatten().sort());
  const double quantile = sorted[2560].item<double>();
  EXPECT_NEAR(one[0], quantile + 0.05, 0.02);  // the first step's, then 5 % of the way to + 1
  EXPECT_GT(one[1], one[0] + 0.1);
  EXPECT_EQ(one[2], 2);
  for (const int64_t ranks : {2, 4}) {
    const std::vector<double> found = thresholds(ranks);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(found[i], one[i], 1e-14);
  }
}

TEST_F(TokenGateTest, ReportsWhatItDid) {
  TokenGate gate = make([](GateOptions& options) {
    options.noise = GateNoise::kNone;
    options.anchor_every = 32;
  });
  EXPECT_FALSE(gate->report().has_value());
  torch::Tensor logit = torch::full({2, 64}, -1.0, torch::kFloat64);
  logit.narrow(1, 60, 4).fill_(3.0);
  open(gate, logit, {.training = true, .step = 50});
  gate->after_step();
  const GateReport report = gate->report().value();
  EXPECT_EQ(report.layer, "blocks.0.gate");
  EXPECT_NEAR(report.target, 0.5, 1e-15);
  EXPECT_NEAR(report.rate, 4.0 / 62, 1e-15);
  ASSERT_EQ(report.rate_by_position.size(), 16u);
  EXPECT_EQ(report.rate_by_position[0], 0);
  EXPECT_EQ(report.rate_by_position[15], 1);
  EXPECT_EQ(report.dropped, 0);
}

TEST_F(TokenGateTest, ThePredictorLearnsTheBestTokens) {
  TokenGate gate = make([](GateOptions& options) {
    options.select = GateSelection::kPredictor;
    options.noise = GateNoise::kNone;
    options.rate_weight = options.entropy_weight = 0;
    options.predictor_weight = 1;
  });
  const torch::Tensor logit = some_numbers({2, 50}, 1);
  const OpenTokens tokens = open(gate, logit, {.training = true});
  EXPECT_EQ(tokens.is_open_bS.sum().item<int64_t>(), 20);
  EXPECT_NEAR(tokens.auxiliary_loss.item<double>(), std::log(2), 1e-12);
  tokens.auxiliary_loss.backward();
  for (const Parameter& parameter : parameters_of(*gate)) {
    if (parameter.name == "predictor_weight") {
      EXPECT_LT(parameter.tensor.grad().item<double>(), -0.01);  // higher for higher logits
    }
  }
}

}  // namespace
}  // namespace shoal
