#include "moe/routing/capacity.h"

#include <gtest/gtest.h>

#include "moe/routing/score_router.h"
#include "tests/moe/routing/make_routing.h"
#include "tests/support/gradient_check.h"

// T tokens  U units  K choices per token  C capacity
namespace shoal {
namespace {

using testing::make_routing;
using testing::places;
using testing::some_numbers;
using testing::values;
using Ids = std::vector<int64_t>;
using Places = std::set<std::tuple<int64_t, int64_t, int64_t>>;

Capacity capped(double factor, CapacityOrder order = CapacityOrder::kSlotMajor, int64_t min = 0) {
  return {CapacityMode::kCapped, factor, min, 1, order};
}

/// Units and scores as written; weights equal the scores.
Routing routing_of(const torch::Tensor& unit_TK, const torch::Tensor& score_TK, int64_t num_units) {
  Routing routing;
  routing.num_units = num_units;
  routing.unit_TK = routing.choice_TK = unit_TK;
  routing.score_TK = routing.weight_TK = score_TK;
  routing.group_offsets = {0, unit_TK.size(0)};
  return routing;
}

const torch::Tensor kFourByFour =
    torch::tensor({{.11, .2, .1, .3}, {.3, .4, .11, .1}, {.11, .1, .6, .5}, {.1, .11, .7, .8}});
const torch::Tensor kFourBySix = torch::tensor({{.5858, .4801, .6269, .5397, .9722, .7034},
                                                {.5445, .6332, .4519, .6308, .0519, .6450},
                                                {.4874, .8110, .7467, .8474, .0277, .3068},
                                                {.8570, .6714, .5310, .3274, .4836, .9892}});

// The published places rank by probability; scales 1 and 2 are those of its two ranks.
TEST(Capacity, KeepsWhatTheFourByFourCaseKeeps) {  // R1
  const Places by_probability{{0, 1, 0}, {1, 0, 0}, {1, 1, 1}, {2, 2, 0},
                              {2, 3, 0}, {3, 2, 1}, {3, 3, 1}};
  const Places by_position{{0, 1, 0}, {0, 3, 0}, {1, 0, 0}, {1, 1, 1},
                           {2, 2, 0}, {2, 3, 1}, {3, 2, 1}};
  for (const double scale : {1.0, 2.0}) {
    const Routing routing = make_routing(kFourByFour * scale, 2);
    EXPECT_EQ(places(apply_capacity(routing, capped(1.0, CapacityOrder::kProbability))),
              by_probability);
    EXPECT_EQ(places(apply_capacity(routing, capped(1.0, CapacityOrder::kPosition))), by_position);
  }
}

TEST(Capacity, KeepsWhatTheFourBySixCaseKeeps) {  // R1
  // Unit 5 is chosen by tokens 0, 1 and 3 with logits .7034, .6450, .9892, but probabilities .173,
  // .190, .230: token 0 has the higher rivals in its row, and loses.
  const Places by_probability{{0, 2, 0}, {0, 4, 0}, {1, 1, 0}, {1, 3, 0}, {1, 5, 0},
                              {2, 1, 1}, {2, 2, 1}, {2, 3, 1}, {3, 0, 0}, {3, 5, 1}};
  const Places by_position{{0, 2, 0}, {0, 4, 0}, {0, 5, 0}, {1, 1, 0}, {1, 3, 0},
                           {1, 5, 1}, {2, 1, 1}, {2, 2, 1}, {2, 3, 1}, {3, 0, 0}};
  for (const double scale : {1.0, 2.0, 3.0}) {
    const Routing routing = make_routing(kFourBySix * scale, 3);
    EXPECT_EQ(places(apply_capacity(routing, capped(1.0, CapacityOrder::kProbability))),
              by_probability);
    EXPECT_EQ(places(apply_capacity(routing, capped(1.0, CapacityOrder::kPosition))), by_position);
  }
}

TEST(Capacity, DropsNothingWhereAUnitHasRoomForAll) {  // R1: C = 4
  const torch::Tensor logits = torch::tensor(
      {{.95, .85, .90, .80}, {.70, .65, .75, .60}, {.50, .55, .45, .40}, {.35, .30, .25, .20}});
  const Places all{{0, 0, 0}, {0, 2, 0}, {1, 0, 1}, {1, 2, 1},
                   {2, 0, 2}, {2, 1, 0}, {3, 0, 3}, {3, 1, 1}};
  for (const double scale : {1.0, 2.0}) {
    const Routing routing = make_routing(logits * scale, 2);
    EXPECT_EQ(places(apply_capacity(routing, {})), all);
    EXPECT_EQ(places(apply_capacity(routing, {CapacityMode::kDropless, 0.01, 0, 1, {}})), all);
    for (const CapacityOrder order : {CapacityOrder::kSlotMajor, CapacityOrder::kBatchPriority,
                                      CapacityOrder::kProbability, CapacityOrder::kPosition}) {
      EXPECT_EQ(places(apply_capacity(routing, capped(2.0, order))), all);
    }
  }
}

TEST(Capacity, SizeIsRoundedUpAlignedAndAtLeastMin) {  // R3
  EXPECT_EQ(unit_capacity(64, 32, {CapacityMode::kCapped, 1.0, 0, 1, {}}), 2);
  EXPECT_EQ(unit_capacity(64, 32, {CapacityMode::kCapped, 1.0, 4, 1, {}}), 4);
  EXPECT_EQ(unit_capacity(128, 32, {CapacityMode::kCapped, 2.0, 4, 1, {}}), 8);
  EXPECT_EQ(unit_capacity(20, 4, {CapacityMode::kCapped, 1.25, 0, 1, {}}), 7);
  EXPECT_EQ(unit_capacity(392, 32, {CapacityMode::kCapped, 1.05, 0, 1, {}}), 13);
  EXPECT_EQ(unit_capacity(392, 32, {CapacityMode::kCapped, 1.05, 0, 4, {}}), 16);
  EXPECT_EQ(unit_capacity(0, 32, {CapacityMode::kCapped, 1.05, 4, 8, {}}), 4);
  EXPECT_EQ(unit_capacity(0, 32, {CapacityMode::kCapped, 1.05, 0, 1, {}}), 0);
  EXPECT_THROW(unit_capacity(64, 32, {CapacityMode::kCapped, -1.0, 0, 1, {}}), c10::Error);
  EXPECT_THROW(unit_capacity(64, 32, {CapacityMode::kCapped, 0.0, 0, 1, {}}), c10::Error);
}

TEST(Capacity, SizeIsExactWhereDoublesRoundUp) {
  // 1.1 * 100 is 110.00000000000001 in doubles: one row too many.
  EXPECT_EQ(unit_capacity(100, 1, {CapacityMode::kCapped, 1.1, 0, 1, {}}), 110);
}

TEST(Capacity, HugeFactorsDoNotFail) {  // R4
  const Routing routing = make_routing(kFourByFour, 2);
  EXPECT_EQ(apply_capacity(routing, capped(1e300)).num_kept.item<int64_t>(), 8);
  EXPECT_EQ(apply_capacity(routing, capped(100.0)).num_kept.item<int64_t>(), 8);
  EXPECT_EQ(unit_capacity(8, 4, {CapacityMode::kCapped, 1e300, 4, 1000, {}}), int64_t{1} << 62);
  EXPECT_THROW(apply_capacity(routing, {CapacityMode::kPadded, 1e300, 4, 1, {}}), c10::Error);
}

TEST(Capacity, PaddingKeepsItsWidthWhenThereAreFewerTokens) {  // R4
  const Routing routing = make_routing(kFourByFour.narrow(0, 0, 2), 2);
  const TokenAssignments kept = apply_capacity(routing, {CapacityMode::kPadded, 5.0, 4, 1, {}});
  EXPECT_EQ(values(kept.rows_U), (Ids{5, 5, 5, 5}));
  EXPECT_EQ(kept.num_kept.item<int64_t>(), 4);
  EXPECT_EQ(values(kept.token_A),
            (Ids{1, -1, -1, -1, -1, 0, 1, -1, -1, -1, -1, -1, -1, -1, -1, 0, -1, -1, -1, -1}));
  const TokenAssignments at_least = apply_capacity(routing, {CapacityMode::kPadded, 0.1, 3, 1, {}});
  EXPECT_EQ(values(at_least.rows_U), (Ids{3, 3, 3, 3}));
}

TEST(Capacity, WidthsAboveTheNumberOfTokensKeepAllChoices) {  // R4
  struct Case {
    int64_t tokens, units, k, min, width;
    double factor;
    CapacityOrder order;
  };
  for (const Case& test : {Case{8, 2, 2, 0, 16, 2.0, CapacityOrder::kProbability},
                           Case{8, 2, 1, 0, 16, 4.0, CapacityOrder::kProbability},
                           Case{4, 2, 1, 8, 8, 1.0, CapacityOrder::kPosition},
                           Case{3, 4, 1, 0, 6, 8.0, CapacityOrder::kSlotMajor}}) {
    const Routing routing = make_routing(some_numbers({test.tokens, test.units}, 1), test.k);
    const TokenAssignments kept =
        apply_capacity(routing, {CapacityMode::kPadded, test.factor, test.min, 1, test.order});
    EXPECT_EQ(values(kept.rows_U), Ids(static_cast<size_t>(test.units), test.width));
    EXPECT_EQ(kept.num_kept.item<int64_t>(), test.tokens * test.k);
    EXPECT_EQ(places(kept), places(apply_capacity(routing, {})));
  }
}

TEST(Capacity, CountsOfKeptRowsFitTheMode) {  // R5
  constexpr int64_t kTokens = 32, kUnits = 8;
  for (const int64_t k : {1, 2, 3}) {
    const Routing routing = make_routing(some_numbers({kTokens, kUnits}, k), k);
    EXPECT_EQ(apply_capacity(routing, {}).num_kept.item<int64_t>(), kTokens * k);
    for (const int64_t factor : {1, 2}) {
      for (const CapacityOrder order : {CapacityOrder::kProbability, CapacityOrder::kPosition}) {
        const TokenAssignments open =
            apply_capacity(routing, {CapacityMode::kCapped, double(factor), 0, 1, order});
        EXPECT_LE(open.num_kept.item<int64_t>(), kTokens * k * factor);
        EXPECT_LE(open.rows_U.max().item<int64_t>(), kTokens * k * factor / kUnits);
        const TokenAssignments padded =
            apply_capacity(routing, {CapacityMode::kPadded, double(factor), 0, 1, order});
        EXPECT_EQ(padded.token_A.size(0), kTokens * k * factor);
        EXPECT_EQ(padded.num_kept.item<int64_t>(), open.num_kept.item<int64_t>());
        EXPECT_EQ(places(padded), places(open));
      }
    }
  }
}

// Four tokens, two choices each, two units of capacity 2 (factor 0.5). All of them want unit 0:
// tokens 0 and 3 as their first choice, tokens 1 and 2 as their second.
Routing contested() {
  return routing_of(torch::tensor({{0, 1}, {1, 0}, {1, 0}, {0, 1}}),
                    torch::tensor({{.50, .40}, {.60, .39}, {.90, .05}, {.80, .20}}), 2);
}

TEST(Capacity, SlotMajorServesFirstChoicesFirst) {
  EXPECT_EQ(places(apply_capacity(contested(), capped(0.5))),
            (Places{{0, 0, 0}, {3, 0, 1}, {1, 1, 0}, {2, 1, 1}}));
  // With room for three, the lowest second choice follows.
  EXPECT_EQ(places(apply_capacity(contested(), capped(0.75))),
            (Places{{0, 0, 0}, {1, 0, 1}, {3, 0, 2}, {0, 1, 0}, {1, 1, 1}, {2, 1, 2}}));
}

TEST(Capacity, BatchPriorityServesTheMostCertainTokensFirst) {
  // First choices beat second ones still; among second choices token 2 (.90) beats token 1 (.60) in
  // unit 0, and token 3 (.80) beats token 0 (.50) in unit 1.
  EXPECT_EQ(places(apply_capacity(contested(), capped(0.75, CapacityOrder::kBatchPriority))),
            (Places{{0, 0, 0}, {2, 0, 1}, {3, 0, 2}, {1, 1, 0}, {2, 1, 1}, {3, 1, 2}}));
  EXPECT_EQ(places(apply_capacity(contested(), capped(0.25, CapacityOrder::kBatchPriority))),
            (Places{{3, 0, 0}, {2, 1, 0}}));
}

TEST(Capacity, BatchPriorityIsTheHighestScoreOfATokenWhateverItsPlace) {
  // One place a unit. Token 1's first choice, which a bias put there, has less than token 0's.
  Routing routing =
      routing_of(torch::tensor({{0, 1}, {0, 1}}), torch::tensor({{.50, .40}, {.30, .90}}), 2);
  const Capacity capacity = capped(0.5, CapacityOrder::kBatchPriority);
  EXPECT_EQ(places(apply_capacity(routing, capacity)), (Places{{1, 0, 0}, {1, 1, 0}}));
  EXPECT_EQ(places(apply_capacity(routing, capped(0.5))), (Places{{0, 0, 0}, {0, 1, 0}}));
  // Units that a bias kept a token from count as well.
  routing.priority_T = torch::tensor({.95, .90});
  EXPECT_EQ(places(apply_capacity(routing, capacity)), (Places{{0, 0, 0}, {0, 1, 0}}));
  // The other orders do not look at it.
  routing.priority_T = torch::tensor({.50, .90});
  EXPECT_EQ(places(apply_capacity(routing, capped(0.5))), (Places{{0, 0, 0}, {0, 1, 0}}));
  EXPECT_EQ(places(apply_capacity(routing, capped(0.5, CapacityOrder::kProbability))),
            (Places{{0, 0, 0}, {1, 1, 0}}));
}

// Three tokens of two choices over three units of two places. Unit 0 is the first choice of all;
// token 2 is the last of them, and the most certain.
TEST(Capacity, KeepsWhatTheThreeByThreeCaseKeeps) {  // R2
  const torch::Tensor gate =
      torch::tensor({{.5, .3, .2}, {.6, .3, .1}, {.7, .1, .2}}, torch::kFloat64);
  const Routing routing = make_routing(gate.log(), 2);
  EXPECT_EQ(places(apply_capacity(routing, capped(1.0))),
            (Places{{0, 0, 0}, {0, 1, 0}, {1, 0, 1}, {1, 1, 1}, {2, 2, 0}}));
  EXPECT_EQ(places(apply_capacity(routing, capped(1.0, CapacityOrder::kBatchPriority))),
            (Places{{0, 1, 0}, {1, 0, 0}, {1, 1, 1}, {2, 0, 1}, {2, 2, 0}}));
}

TEST(Capacity, ProbabilityServesTheHighestScoresFirst) {
  EXPECT_EQ(places(apply_capacity(contested(), capped(0.5, CapacityOrder::kProbability))),
            (Places{{0, 0, 0}, {3, 0, 1}, {1, 1, 0}, {2, 1, 1}}));
  EXPECT_EQ(places(apply_capacity(contested(), capped(0.75, CapacityOrder::kProbability))),
            (Places{{0, 0, 0}, {1, 0, 1}, {3, 0, 2}, {0, 1, 0}, {1, 1, 1}, {2, 1, 2}}));
}

TEST(Capacity, PositionServesTheLowestTokensFirst) {
  EXPECT_EQ(places(apply_capacity(contested(), capped(0.5, CapacityOrder::kPosition))),
            (Places{{0, 0, 0}, {1, 0, 1}, {0, 1, 0}, {1, 1, 1}}));
}

TEST(Capacity, TiesKeepTheLowerToken) {
  const Routing routing = routing_of(torch::zeros({5, 1}, torch::kInt64), torch::ones({5, 1}), 1);
  for (const CapacityOrder order : {CapacityOrder::kSlotMajor, CapacityOrder::kBatchPriority,
                                    CapacityOrder::kProbability, CapacityOrder::kPosition}) {
    EXPECT_EQ(places(apply_capacity(routing, capped(0.4, order))), (Places{{0, 0, 0}, {1, 0, 1}}));
  }
}

TEST(Capacity, EachRoutingGroupHasItsOwn) {
  Routing routing = routing_of(torch::zeros({7, 1}, torch::kInt64), torch::ones({7, 1}), 2);
  routing.group_offsets = {0, 4, 7};  // C = 2 and ceil(3 / 2) = 2
  EXPECT_EQ(values(apply_capacity(routing, capped(1.0)).token_A), (Ids{0, 1, 4, 5}));
  const TokenAssignments padded = apply_capacity(routing, {CapacityMode::kPadded, 1.0, 0, 3, {}});
  EXPECT_EQ(values(padded.token_A), (Ids{0, 1, 2, 4, 5, 6, -1, -1, -1, -1, -1, -1}));
}

TEST(Capacity, MaskedTokensTakeNoPlaceAndDoNotCount) {
  Routing routing = routing_of(torch::tensor({{0}, {-1}, {0}, {-1}, {0}}), torch::ones({5, 1}), 1);
  EXPECT_EQ(values(apply_capacity(routing, {}).token_A), (Ids{0, 2, 4}));
  // C = ceil(3 * 0.5) = 2, not ceil(5 * 0.5) = 3.
  EXPECT_EQ(values(apply_capacity(routing, capped(0.5)).token_A), (Ids{0, 2}));
}

TEST(Capacity, WeightsBelongToTheRowsThatStay) {
  Routing routing = contested();
  const TokenAssignments kept = apply_capacity(routing, capped(0.5));  // rows: 0, 3 | 1, 2
  EXPECT_TRUE(torch::allclose(kept.weight_A, torch::tensor({.50, .80, .60, .90})));
  routing.weight_scale = 2.5;
  EXPECT_TRUE(torch::allclose(apply_capacity(routing, capped(0.5)).weight_A,
                              torch::tensor({1.25, 2.0, 1.5, 2.25})));
}

TEST(Capacity, SurvivingWeightsAreRenormalisedOnDemandBeforeTheScale) {
  Routing routing = contested();
  routing.renorm_after_drop = true;
  routing.weight_scale = 2.0;
  // Position with C = 3 drops the last choice of each unit: (3, unit 0) and (3, unit 1).
  const TokenAssignments kept = apply_capacity(routing, capped(0.75, CapacityOrder::kPosition));
  EXPECT_EQ(values(kept.choice_A), (Ids{0, 3, 5, 1, 2, 4}));
  const torch::Tensor expected = torch::tensor(
      {2 * .50 / .90, 2 * .39 / .99, 2 * .05 / .95, 2 * .40 / .90, 2 * .60 / .99, 2 * .90 / .95});
  EXPECT_TRUE(torch::allclose(kept.weight_A, expected.to(kept.weight_A.scalar_type())));
}

// Token 0 chose units 3 and 1 and keeps 1 alone: its weight is 1 with renormalisation (DeepSpeed)
// and 0.475021 without (Megatron-Core).
TEST(Capacity, TheLastWeightOfATokenIsOneIfRenormalised) {
  for (const bool renorm : {false, true}) {
    Routing routing = make_routing(kFourByFour, 2);
    routing.weight_TK = combine_weights(routing.prob_TU, routing.logits_TU, routing.choice_TK,
                                        Normalise::kTopkSoftmax);
    routing.renorm_after_drop = renorm;
    const TokenAssignments kept = apply_capacity(routing, capped(1.0, CapacityOrder::kProbability));
    const torch::Tensor weight = kept.weight_A.masked_select(kept.token_A == 0);
    ASSERT_EQ(weight.numel(), 1);
    EXPECT_NEAR(weight.item<double>(), renorm ? 1.0 : 0.475021, 5e-7);
  }
}

TEST(Capacity, GradientsOfTheWeightsAreThoseOfFiniteDifferences) {
  for (const bool renorm : {false, true}) {
    for (const CapacityMode mode : {CapacityMode::kCapped, CapacityMode::kPadded}) {
      Routing routing = make_routing(some_numbers({12, 4}, 3), 2);
      routing.weight_TK = (some_numbers({12, 2}, 4).abs() + 0.1).set_requires_grad(true);
      routing.renorm_after_drop = renorm;
      routing.weight_scale = 1.5;
      const auto weights = [&] {
        const TokenAssignments kept = apply_capacity(routing, {mode, 0.5, 0, 1, {}});
        return kept.weight_A.index_select(0, (kept.choice_A >= 0).nonzero().flatten());
      };
      EXPECT_LT(testing::gradient_error(weights, {routing.weight_TK}), 1e-7);
    }
  }
}

TEST(Capacity, TakesNoTokens) {
  const Routing routing = make_routing(torch::zeros({0, 4}), 2, {0});
  const TokenAssignments none = apply_capacity(routing, capped(1.0));
  EXPECT_EQ(none.token_A.size(0), 0);
  EXPECT_EQ(values(none.rows_U), (Ids{0, 0, 0, 0}));
  EXPECT_EQ(apply_capacity(routing, {CapacityMode::kPadded, 1.0, 4, 1, {}}).token_A.size(0), 0);
}

}  // namespace
}  // namespace shoal
