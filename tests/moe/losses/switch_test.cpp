#include <gtest/gtest.h>

#include "tests/moe/losses/loss_value.h"
#include "tests/moe/routing/make_routing.h"
#include "tests/support/gradient_check.h"

// T tokens  U units  K choices per token
namespace shoal {
namespace {

using testing::gradient_error;
using testing::make_routing;
using testing::some_numbers;
using testing::value_of;

/// U * sum over units of (counted choices / all that are counted) * (mean score).
double plain_switch(const Routing& routing, int64_t counted) {
  const int64_t num_tokens = routing.num_tokens(), num_units = routing.num_units;
  double loss = 0.0;
  for (int64_t u = 0; u < num_units; ++u) {
    double count = 0.0, score = 0.0;
    for (int64_t t = 0; t < num_tokens; ++t) {
      score += routing.prob_TU[t][u].item<double>();
      for (int64_t k = 0; k < counted; ++k) count += routing.choice_TK[t][k].item<int64_t>() == u;
    }
    loss +=
        count / static_cast<double>(num_tokens * counted) * score / static_cast<double>(num_tokens);
  }
  return static_cast<double>(num_units) * loss;
}

const torch::Tensor kSomeLogits = torch::tensor(
    {{.11, .2, .1, .3}, {.3, .4, .11, .1}, {.11, .1, .6, .5}, {.1, .11, .7, .8}}, torch::kFloat64);

TEST(SwitchLoss, EqualsThePublishedValueOfGShard) {  // L1
  const torch::Tensor gates =
      torch::tensor({{.5, .4, .1}, {.3, .3, .4}, {.1, .2, .7}, {.8, .2, 0.}}, torch::kFloat64);
  Routing routing = make_routing(gates, 2);
  routing.prob_TU = gates;
  EXPECT_NEAR(value_of("switch, counts: first_choice", routing).item<double>(), 1.0875, 1e-15);
  // By hand: 3, 3 and 2 of the 8 choices (the tie of the second token goes to the lower unit).
  const double selected = 3 * (3 * .425 + 3 * .275 + 2 * .3) / 8;
  EXPECT_NEAR(value_of("switch", routing).item<double>(), selected, 1e-15);
}

TEST(SwitchLoss, EqualsThePlainLoop) {  // L2
  const Routing small = make_routing(kSomeLogits, 2);
  EXPECT_NEAR(value_of("switch", small).item<double>(), plain_switch(small, 2), 1e-15);
  EXPECT_NEAR(value_of("switch, counts: first_choice", small).item<double>(),
              plain_switch(small, 1), 1e-15);
  EXPECT_NE(plain_switch(small, 1), plain_switch(small, 2));
  for (const int64_t k : {1, 3, 5}) {
    const Routing routing = make_routing(some_numbers({40, 5}, k) * 3, k);
    EXPECT_NEAR(value_of("switch", routing).item<double>(), plain_switch(routing, k), 1e-14);
    EXPECT_NEAR(value_of("switch, counts: first_choice", routing).item<double>(),
                plain_switch(routing, 1), 1e-14);
  }
}

TEST(SwitchLoss, EvenScoresGiveExactlyOneWhateverTheChoices) {  // L3
  const auto self = make_self_communicator();
  const StepContext step = testing::loss_step(4, 2);
  const TokenContext context = make_token_context(step, 0, 8);
  // Of equal scores the lower units are chosen: as uneven as can be.
  const Routing routing = make_routing(torch::zeros({32, 4}), 2);
  for (const ScopeKind kind : {ScopeKind::kSequence, ScopeKind::kGroup, ScopeKind::kGlobal}) {
    const Scope scope(kind, context, *self);
    for (const char* loss : {"switch", "switch, counts: first_choice"}) {
      const torch::Tensor value_S = testing::make_loss(loss)->value_S(routing, scope);
      EXPECT_TRUE(torch::equal(value_S, torch::ones_like(value_S))) << loss;
    }
  }
}

TEST(SwitchLoss, EvenChoicesGiveOneWhateverTheScores) {  // L3
  Routing routing = make_routing(some_numbers({32, 4}, 3), 1);
  routing.choice_TK = torch::arange(32).remainder(4).unsqueeze(1);
  EXPECT_NEAR(value_of("switch", routing).item<double>(), 1.0, 1e-15);
}

TEST(SwitchLoss, AllTokensOnOneUnitGiveTheNumberOfUnits) {
  const torch::Tensor certain = torch::tensor({{50., 0., 0.}}, torch::kFloat64).expand({6, 3});
  EXPECT_NEAR(value_of("switch", make_routing(certain, 1)).item<double>(), 3.0, 1e-15);
}

TEST(SwitchLoss, CountsTheChoicesOfMaskedTokens) {
  Routing routing = make_routing(kSomeLogits, 2);
  routing.unit_TK = torch::full_like(routing.unit_TK, -1);
  EXPECT_NEAR(value_of("switch", routing).item<double>(), plain_switch(routing, 2), 1e-15);
}

TEST(SwitchLoss, GradientGoesThroughTheScoresAlone) {
  torch::Tensor logits = some_numbers({14, 4}, 4).set_requires_grad(true);
  for (const char* loss : {"switch", "switch, counts: first_choice"}) {
    EXPECT_LT(gradient_error([&] { return value_of(loss, make_routing(logits, 2)); }, {logits}),
              1e-6)
        << loss;
  }
}

}  // namespace
}  // namespace shoal
