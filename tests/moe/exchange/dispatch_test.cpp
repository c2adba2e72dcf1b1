#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>

#include "moe/exchange/row_route.h"
#include "parallel/gradients/parameter_group.h"
#include "runtime/base/error.h"
#include "tests/moe/routing/make_routing.h"
#include "tests/support/forwarding_communicator.h"
#include "tests/support/gradient_check.h"
#include "tests/support/parallel_checks.h"
#include "tests/support/ranks.h"

// T tokens  D width  U units  K choices per token  R rows on a rank
namespace shoal {
namespace {

using testing::make_routing;
using testing::some_numbers;
using testing::values;
using Ids = std::vector<int64_t>;

/// A flat exchange after its dispatch.
struct Dispatched {
  torch::Tensor rows_RD, weight_R;
  DispatchPlan plan;
  std::shared_ptr<FlatExchange> exchange;
};

Dispatched dispatch(const torch::Tensor& x_TD, const TokenAssignments& assignments,
                    const UnitPlacement& placement, Communicator& expert) {
  const PendingPlans plans = start_plans({assignments}, placement, expert);
  const auto exchange = std::make_shared<FlatExchange>(
      FlatExchange::Planned{plans, 0}, assignments.weight_A, expert, Payload::kSame);
  exchange->start_dispatch(x_TD);
  const ArrivedRows arrived = exchange->finish_dispatch();
  return {arrived.rows_RD, arrived.weight_R, plans.get().front(), exchange};
}

/// Weighs the rows first.
torch::Tensor combine(const torch::Tensor& rows_RD, const Dispatched& sent) {
  sent.exchange->start_combine(rows_RD * sent.weight_R.unsqueeze(1));
  return sent.exchange->finish_combine();
}

TEST(Dispatch, EqualsTheOneHotEinsum) {  // X6
  constexpr int64_t kTokens = 16, kUnits = 4, kWidth = 8;
  const auto self = make_self_communicator();
  for (const int64_t k : {1, 2, 3}) {
    torch::Tensor x = some_numbers({kTokens, kWidth}, 1).set_requires_grad(true);
    torch::Tensor logits = some_numbers({kTokens, kUnits}, 2).set_requires_grad(true);
    const Routing routing = make_routing(logits, k);
    const TokenAssignments assignments =
        apply_capacity(routing, {CapacityMode::kPadded, 1.0, 0, 1, {}});
    const int64_t capacity = assignments.rows_U[0].item<int64_t>();
    const Dispatched sent = dispatch(x, assignments, UnitPlacement::contiguous(kUnits, 1), *self);
    const torch::Tensor y = combine(sent.rows_RD * 3, sent);

    torch::Tensor mask_TUC = torch::zeros({kTokens, kUnits, capacity}, torch::kFloat64);
    for (const auto& [token, unit, place] : testing::places(assignments)) {
      mask_TUC[token][unit][place] = 1.0;
    }
    const torch::Tensor weight_TUC = mask_TUC * routing.prob_TU.unsqueeze(2);
    const torch::Tensor rows_UCD = torch::einsum("tuc,td->ucd", {mask_TUC, x});
    EXPECT_TRUE(torch::equal(sent.rows_RD, rows_UCD.reshape({-1, kWidth})));
    const torch::Tensor expected = torch::einsum("tuc,ucd->td", {weight_TUC, rows_UCD * 3});
    EXPECT_TRUE(torch::allclose(y, expected, 0, 1e-14));

    const torch::Tensor upstream = some_numbers({kTokens, kWidth}, 3);
    (y * upstream).sum().backward({}, /*retain_graph=*/true);
    const torch::Tensor grad = x.grad().clone(), logits_grad = logits.grad().clone();
    x.mutable_grad().reset();
    logits.mutable_grad().reset();
    (expected * upstream).sum().backward();
    EXPECT_TRUE(torch::allclose(grad, x.grad(), 0, 1e-14));
    EXPECT_TRUE(torch::allclose(logits_grad, logits.grad(), 0, 1e-13));
    EXPECT_GT(logits_grad.abs().max().item<double>(), 0.1);
  }
}

TEST(Dispatch, ExchangesNothingOnOneRank) {
  const auto self = make_self_communicator();
  const Routing routing = make_routing(some_numbers({6, 3}, 1), 2);
  const Dispatched sent = dispatch(some_numbers({6, 2}, 2), apply_capacity(routing, {}),
                                   UnitPlacement::contiguous(3, 1), *self);
  combine(sent.rows_RD, sent);
  EXPECT_EQ(self->counters().all_to_all, 0);
  EXPECT_EQ(self->counters().all_reduce, 0);
}

TEST(Dispatch, RefusesAPlacementOnOtherRanks) {
  const auto self = make_self_communicator();
  const Routing routing = make_routing(some_numbers({6, 3}, 1), 2);
  EXPECT_THROW(dispatch(some_numbers({6, 2}, 2), apply_capacity(routing, {}),
                        UnitPlacement::contiguous(3, 2), *self),
               c10::Error);
  EXPECT_THROW(dispatch(some_numbers({6, 2}, 2), apply_capacity(routing, {}),
                        UnitPlacement::contiguous(4, 1), *self),
               c10::Error);
}

/// What a test looks at after a round trip on one rank of many.
struct RoundTrip {
  int64_t num_tokens, k, num_units;
  CapacityMode mode;
  int64_t align;
};

/// Units return their rows unchanged, and weights are 1 / k: the layer is the identity.
void expect_identity(const RoundTrip& trip, const UnitPlacement& placement, Communicator& expert) {
  constexpr int64_t kWidth = 16;
  const int64_t rank = expert.rank();
  torch::Tensor x =
      some_numbers({trip.num_tokens, kWidth}, 10 + rank, torch::kFloat32).set_requires_grad(true);
  Routing routing =
      make_routing(some_numbers({trip.num_tokens, trip.num_units}, 20 + rank), trip.k);
  routing.weight_TK =
      torch::full({trip.num_tokens, trip.k}, 1.0 / static_cast<double>(trip.k), torch::kFloat32);
  const Capacity capacity{trip.mode, 100.0, 0, trip.align, {}};
  const TokenAssignments assignments = apply_capacity(routing, capacity);
  const Dispatched sent = dispatch(x, assignments, placement, expert);
  if (trip.mode == CapacityMode::kPadded) {
    const int64_t width = unit_capacity(trip.num_tokens * trip.k, trip.num_units, capacity);
    EXPECT_EQ(width % trip.align, 0);
    for (const int64_t rows : sent.plan.rows_u.rows_u()) EXPECT_EQ(rows, width * expert.size());
  }
  const Ids rows_u = sent.plan.rows_u.to_host();
  EXPECT_EQ(std::accumulate(rows_u.begin(), rows_u.end(), int64_t{0}), sent.rows_RD.size(0));
  const torch::Tensor y = combine(sent.rows_RD, sent);
  const torch::Tensor upstream = some_numbers({trip.num_tokens, kWidth}, 30, torch::kFloat32);
  (y * upstream).sum().backward();
  // Sums of k parts of 1 / k: exact for k = 1 and 2, else a float32 rounding in each of 320 values.
  EXPECT_LE((y - x).abs().sum().item<double>(), trip.k <= 2 ? 0.0 : 1e-4);
  EXPECT_LE((x.grad() - upstream).abs().sum().item<double>(), trip.k <= 2 ? 0.0 : 1e-4);
}

TEST(DispatchRanks, RoundTripIsTheIdentityAndSoIsItsGradient) {  // X2
  for (const int64_t ranks : {1, 2, 3, 4, 8}) {
    for (const auto& [mode, align] : {std::pair{CapacityMode::kDropless, int64_t{1}},
                                      std::pair{CapacityMode::kCapped, int64_t{1}},
                                      std::pair{CapacityMode::kPadded, int64_t{1}},
                                      std::pair{CapacityMode::kPadded, int64_t{16}}}) {
      testing::run_ranks(ranks, [&, mode = mode, align = align](Communicator& expert) {
        expect_identity({256, 2, 8, mode, align}, UnitPlacement::contiguous(8, ranks), expert);
      });
    }
  }
}

/// Output and gradient of a round trip whose units double their rows, with drops.
std::pair<torch::Tensor, torch::Tensor> tight_round_trip(const Capacity& capacity,
                                                         Communicator& expert) {
  constexpr int64_t kTokens = 256, kWidth = 16, kUnits = 8;
  const int64_t rank = expert.rank();
  torch::Tensor x =
      some_numbers({kTokens, kWidth}, 10 + rank, torch::kFloat32).set_requires_grad(true);
  const Routing routing =
      make_routing(some_numbers({kTokens, kUnits}, 20 + rank, torch::kFloat32), 2);
  const TokenAssignments assignments = apply_capacity(routing, capacity);
  EXPECT_LT(assignments.num_kept.item<int64_t>(), kTokens * 2);
  const Dispatched sent =
      dispatch(x, assignments, UnitPlacement::contiguous(kUnits, expert.size()), expert);
  const torch::Tensor y = combine(sent.rows_RD * 2, sent);
  (y * some_numbers({kTokens, kWidth}, 30, torch::kFloat32)).sum().backward();
  return {y.detach(), x.grad()};
}

TEST(DispatchRanks, PaddingAndAlignmentChangeNoBit) {  // X2
  for (const int64_t ranks : {1, 2, 4, 8}) {
    testing::run_ranks(ranks, [&](Communicator& expert) {
      // ceil(512 * 0.75 / 8) = 48 is a multiple of 16: alignment adds no room.
      const auto [y, grad] = tight_round_trip({CapacityMode::kCapped, 0.75, 0, 1, {}}, expert);
      for (const int64_t align : {1, 16}) {
        const auto [padded_y, padded_grad] =
            tight_round_trip({CapacityMode::kPadded, 0.75, 0, align, {}}, expert);
        EXPECT_TRUE(torch::equal(y, padded_y));
        EXPECT_TRUE(torch::equal(grad, padded_grad));
      }
    });
  }
}

TEST(DispatchRanks, RanksMayHaveNoTokensOrNoUnits) {  // R8
  testing::run_ranks(3, [&](Communicator& expert) {
    const int64_t tokens = std::vector<int64_t>{2, 10, 0}[static_cast<size_t>(expert.rank())];
    for (const int64_t units : {2, 5}) {
      expect_identity({tokens, 1, units, CapacityMode::kDropless, 1},
                      UnitPlacement::contiguous(units, 3), expert);
    }
  });
}

TEST(DispatchRanks, UnitsMayLiveAnywhere) {
  testing::run_ranks(3, [&](Communicator& expert) {
    expect_identity({20 - 7 * expert.rank(), 3, 6, CapacityMode::kDropless, 1},
                    UnitPlacement({2, 0, 1, 0, 2, 2}, 3), expert);
  });
}

TEST(DispatchRanks, RowsAreSortedByUnitThenSourceRank) {
  testing::run_ranks(2, [&](Communicator& expert) {
    // Rank r holds tokens 10 r + t; token t is routed to unit t % 4.
    const torch::Tensor x =
        (torch::arange(8, torch::kFloat64) + 10.0 * static_cast<double>(expert.rank()))
            .unsqueeze(1);
    Routing routing = make_routing(torch::zeros({8, 4}, torch::kFloat64), 1);
    routing.unit_TK = torch::arange(8).remainder(4).unsqueeze(1);
    const Dispatched sent =
        dispatch(x, apply_capacity(routing, {}), UnitPlacement::contiguous(4, 2), expert);
    EXPECT_EQ(sent.plan.rows_u.rows_u(), (Ids{4, 4}));
    const Ids expected =
        expert.rank() == 0 ? Ids{0, 4, 10, 14, 1, 5, 11, 15} : Ids{2, 6, 12, 16, 3, 7, 13, 17};
    EXPECT_EQ(values(sent.rows_RD), expected);
  });
}

TEST(DispatchRanks, CountsAddUpOverSourceRanks) {  // X1
  // Rows for units 0 to 3, of which the first two live on rank 0.
  const std::vector<Ids> counts{{2, 3, 1, 0}, {1, 4, 0, 0}};
  testing::run_ranks(2, [&](Communicator& expert) {
    Ids units;
    const Ids& own = counts[static_cast<size_t>(expert.rank())];
    for (size_t u = 0; u < own.size(); ++u) {
      units.insert(units.end(), static_cast<size_t>(own[u]), static_cast<int64_t>(u));
    }
    const auto num_tokens = static_cast<int64_t>(units.size());
    Routing routing = make_routing(torch::zeros({num_tokens, 4}, torch::kFloat64), 1);
    routing.unit_TK = torch::tensor(units).unsqueeze(1);
    const torch::Tensor x = torch::arange(num_tokens, torch::kFloat64).unsqueeze(1);
    const Dispatched sent =
        dispatch(x + 10.0 * static_cast<double>(expert.rank()), apply_capacity(routing, {}),
                 UnitPlacement::contiguous(4, 2), expert);
    if (expert.rank() == 0) {
      EXPECT_EQ(sent.plan.rows_u.rows_u(), (Ids{3, 7}));
      EXPECT_EQ(values(sent.plan.to_units_R), (Ids{0, 1, 5, 2, 3, 4, 6, 7, 8, 9}));
      EXPECT_EQ(values(sent.rows_RD), (Ids{0, 1, 10, 2, 3, 4, 11, 12, 13, 14}));
    } else {
      EXPECT_EQ(sent.plan.rows_u.rows_u(), (Ids{1, 0}));
    }
  });
}

struct ScalarUnit {
  double gradient;     ///< of this rank's unit
  torch::Tensor loss;  ///< this rank's share, [1]
};

/// Two units multiply their rows by a scalar each; a rank's loss is the sum of y^2 / 2 over its two
/// tokens, divided by `num_tokens`.
ScalarUnit train_scalar_unit(Communicator& expert, double num_tokens) {
  const bool is_first = expert.rank() == 0;
  const torch::Tensor x = is_first ? torch::tensor({{1.0}, {2.0}}, torch::kFloat64)
                                   : torch::tensor({{3.0}, {-1.0}}, torch::kFloat64);
  Routing routing = make_routing(torch::zeros({2, 2}, torch::kFloat64), 1);
  routing.unit_TK = torch::tensor({{0}, {1}});
  routing.weight_TK = torch::ones({2, 1}, torch::kFloat64);
  const torch::Tensor w =
      torch::full({1}, is_first ? 0.5 : -1.0, torch::kFloat64).set_requires_grad(true);
  const Dispatched sent =
      dispatch(x, apply_capacity(routing, {}), UnitPlacement::contiguous(2, 2), expert);
  const torch::Tensor y = combine(sent.rows_RD * w, sent);
  const torch::Tensor share = (y.square() / 2).sum() / num_tokens;
  share.backward();
  return {w.grad().item<double>(), share.detach().reshape({1})};
}

// The loss over the four rows of both ranks. Unit 0, w = 0.5, gets 1 from rank 0 and 3 from rank 1;
// unit 1, w = -1, gets 2 and -1.
TEST(DispatchRanks, GradientsOfUnitsNeedNoDivisor) {  // case 8 of the Sparse-MLP cases
  testing::run_owning_ranks(2, [&](std::unique_ptr<Communicator> world) {
    RankGrid grid = make_rank_grid(std::move(world), 2);
    const double sign = grid.expert->rank() == 0 ? 1.0 : -1.0;
    // Means over a rank's own two tokens give twice the gradient of the mean over all four.
    EXPECT_EQ(train_scalar_unit(*grid.expert, 2).gradient, 2.5 * sign);
    const ScalarUnit unit = train_scalar_unit(*grid.expert, 4);
    EXPECT_EQ(unit.gradient, 1.25 * sign);
    all_reduce(*grid.world, unit.loss);
    EXPECT_EQ(unit.loss.item<double>(), 0.9375);

    Parameter w{"experts.*.w", torch::zeros({1, 1}, torch::kFloat64), 1, {grid.expert->rank()}, {}};
    w.tensor.set_requires_grad(true);
    w.tensor.mutable_grad() = torch::full({1, 1}, unit.gradient, torch::kFloat64);
    EXPECT_NEAR(testing::agreed_norm(group_parameters({w}, grid), grid), 1.76776695, 5e-9);
  });
}

/// With trailing padding rows, as there are on a GPU.
TokenAssignments padded(TokenAssignments assignments) {
  const auto behind = [](const torch::Tensor& tensor, int64_t value) {
    return torch::cat({tensor, torch::full({3}, value, tensor.options())});
  };
  assignments.token_A = behind(assignments.token_A, -1);
  assignments.choice_A = behind(assignments.choice_A, -1);
  assignments.weight_A = behind(assignments.weight_A, 7);
  return assignments;
}

TEST(DispatchRanks, IgnoresTrailingPaddingRows) {
  const UnitPlacement scattered({1, 0, 2, 1, 0}, 3);
  testing::run_ranks(3, [&](Communicator& expert) {
    torch::Tensor x = some_numbers({8, 3}, 1 + expert.rank()).set_requires_grad(true);
    const Routing routing = make_routing(some_numbers({8, 5}, 20 + expert.rank()), 2);
    const TokenAssignments assignments = apply_capacity(routing, {});
    const Dispatched expected = dispatch(x, assignments, scattered, expert);
    const Dispatched found = dispatch(x, padded(assignments), scattered, expert);
    EXPECT_TRUE(torch::equal(expected.rows_RD, found.rows_RD));
    EXPECT_EQ(expected.plan.rows_u.rows_u(), found.plan.rows_u.rows_u());
    EXPECT_TRUE(torch::equal(combine(expected.rows_RD, expected), combine(found.rows_RD, found)));
  });
}

TEST(DispatchRanks, AsksForNoCountsThatAreKnown) {
  const UnitPlacement scattered({1, 0, 1, 0}, 2);
  testing::run_ranks(2, [&](Communicator& expert) {
    const int64_t num_tokens = 8 + 4 * expert.rank();
    const torch::Tensor x = some_numbers({num_tokens, 3}, 1 + expert.rank());
    const Routing routing = make_routing(some_numbers({num_tokens, 4}, 20 + expert.rank()), 2);
    TokenAssignments assignments = apply_capacity(routing, {CapacityMode::kPadded, 1.0, 0, 1, {}});
    const Dispatched expected = dispatch(x, assignments, scattered, expert);
    const int64_t num_calls = expert.counters().all_to_all;
    assignments.rows_per_unit_E = {4, 6};
    const Dispatched found = dispatch(x, assignments, scattered, expert);
    EXPECT_EQ(expert.counters().all_to_all, num_calls + 1);
    EXPECT_TRUE(torch::equal(expected.rows_RD, found.rows_RD));
    assignments.rows_per_unit_E = {5, 5};
    EXPECT_THROW(dispatch(x, assignments, scattered, expert), c10::Error);
  });
}

TEST(DispatchRanks, OneExchangeOfCountsThenOneEachWay) {  // X5
  testing::run_ranks(2, [&](Communicator& expert) {
    torch::Tensor x = some_numbers({8, 3}, 1).set_requires_grad(true);
    const Routing routing = make_routing(some_numbers({8, 4}, 2), 2);
    const Dispatched sent =
        dispatch(x, apply_capacity(routing, {}), UnitPlacement::contiguous(4, 2), expert);
    EXPECT_EQ(expert.counters().all_to_all, 2);
    const torch::Tensor y = combine(sent.rows_RD, sent);
    EXPECT_EQ(expert.counters().all_to_all, 3);
    y.sum().backward();
    EXPECT_EQ(expert.counters().all_to_all, 5);
    EXPECT_EQ(expert.counters().all_reduce, 0);
  });
}

TEST(DispatchRanks, UsesNoCountsOfAGroupThatHasFailed) {
  testing::run_owning_ranks(2, [](std::unique_ptr<Communicator> world) {
    testing::FailedCommunicator expert(std::move(world));
    const Routing routing = make_routing(some_numbers({8, 4}, 2), 2);
    const auto send = [&] {
      dispatch(some_numbers({8, 3}, 1), apply_capacity(routing, {}),
               UnitPlacement::contiguous(4, 2), expert);
    };
    EXPECT_THROW(send(), CommError);
  });
}

}  // namespace
}  // namespace shoal
