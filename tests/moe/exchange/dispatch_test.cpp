#include "moe/exchange/dispatch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>

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
using testing::run_grid;
using testing::some_numbers;
using testing::values;
using Ids = std::vector<int64_t>;

/// What has arrived of a chunk, and the way back.
struct Sent {
  torch::Tensor rows_RD, weight_R;
  RowRoute route;
  const DispatchPlan& plan() const { return route.first.plan; }
};

Sent send(const torch::Tensor& x_TD, const TokenAssignments& assignments,
          const UnitPlacement& placement, const RankGrid& grid) {
  const PackedType type{x_TD.scalar_type(), assignments.weight_A.scalar_type(), x_TD.size(1)};
  const RowRoute route = start_routes({assignments}, placement, grid, {}, {type}).wait().front();
  const Dispatched dispatched = dispatch(x_TD, assignments.weight_A, route);
  return {dispatched.rows_RD, dispatched.weight_R, route};
}

/// Weights the rows and sends them back.
torch::Tensor send_back(const torch::Tensor& rows_RD, const Sent& sent) {
  return combine(rows_RD * sent.weight_R.unsqueeze(1), sent.route);
}

TEST(Dispatch, EqualsTheOneHotEinsum) {  // X6
  constexpr int64_t kTokens = 16, kUnits = 4, kWidth = 8;
  const RankGrid self = testing::self_grid();
  for (const int64_t k : {1, 2, 3}) {
    torch::Tensor x = some_numbers({kTokens, kWidth}, 1).set_requires_grad(true);
    torch::Tensor logits = some_numbers({kTokens, kUnits}, 2).set_requires_grad(true);
    const Routing routing = make_routing(logits, k);
    const TokenAssignments assignments =
        apply_capacity(routing, {CapacityMode::kPadded, 1.0, 0, 1, {}});
    const int64_t capacity = assignments.rows_U[0].item<int64_t>();
    const Sent sent = send(x, assignments, UnitPlacement::contiguous(kUnits, 1), self);
    const torch::Tensor y = send_back(sent.rows_RD * 3, sent);

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
  const RankGrid self = testing::self_grid();
  const Routing routing = make_routing(some_numbers({6, 3}, 1), 2);
  const Sent sent = send(some_numbers({6, 2}, 2), apply_capacity(routing, {}),
                         UnitPlacement::contiguous(3, 1), self);
  send_back(sent.rows_RD, sent);
  EXPECT_EQ(self.expert->counters().all_to_all, 0);
  EXPECT_EQ(self.expert->counters().all_reduce, 0);
}

TEST(Dispatch, RefusesAPlacementOnOtherRanks) {
  const RankGrid self = testing::self_grid();
  const Routing routing = make_routing(some_numbers({6, 3}, 1), 2);
  EXPECT_THROW(send(some_numbers({6, 2}, 2), apply_capacity(routing, {}),
                    UnitPlacement::contiguous(3, 2), self),
               c10::Error);
  EXPECT_THROW(send(some_numbers({6, 2}, 2), apply_capacity(routing, {}),
                    UnitPlacement::contiguous(4, 1), self),
               c10::Error);
}

/// What a test looks at after a round trip on one rank of many.
struct RoundTrip {
  int64_t num_tokens, k, num_units;
  CapacityMode mode;
  int64_t align;
};

/// Units return their rows unchanged, and weights are 1 / k: the layer is the identity.
void expect_identity(const RoundTrip& trip, const UnitPlacement& placement, const RankGrid& grid) {
  constexpr int64_t kWidth = 16;
  const int64_t rank = grid.expert->rank();
  torch::Tensor x =
      some_numbers({trip.num_tokens, kWidth}, 10 + rank, torch::kFloat32).set_requires_grad(true);
  Routing routing =
      make_routing(some_numbers({trip.num_tokens, trip.num_units}, 20 + rank), trip.k);
  routing.weight_TK =
      torch::full({trip.num_tokens, trip.k}, 1.0 / static_cast<double>(trip.k), torch::kFloat32);
  const Capacity capacity{trip.mode, 100.0, 0, trip.align, {}};
  const TokenAssignments assignments = apply_capacity(routing, capacity);
  const Sent sent = send(x, assignments, placement, grid);
  if (trip.mode == CapacityMode::kPadded) {
    const int64_t width = unit_capacity(trip.num_tokens * trip.k, trip.num_units, capacity);
    EXPECT_EQ(width % trip.align, 0);
    for (const int64_t rows : sent.plan().rows_u.rows_u()) {
      EXPECT_EQ(rows, width * grid.expert->size());
    }
  }
  const Ids rows_u = sent.plan().rows_u.to_host();
  EXPECT_EQ(std::accumulate(rows_u.begin(), rows_u.end(), int64_t{0}), sent.rows_RD.size(0));
  const torch::Tensor y = send_back(sent.rows_RD, sent);
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
      run_grid(ranks, 1, [&, mode = mode, align = align](RankGrid& grid) {
        expect_identity({256, 2, 8, mode, align}, UnitPlacement::contiguous(8, ranks), grid);
      });
    }
  }
}

/// Output and gradient of a round trip whose units double their rows, with drops.
std::pair<torch::Tensor, torch::Tensor> tight_round_trip(const Capacity& capacity,
                                                         const RankGrid& grid) {
  constexpr int64_t kTokens = 256, kWidth = 16, kUnits = 8;
  const int64_t rank = grid.expert->rank();
  torch::Tensor x =
      some_numbers({kTokens, kWidth}, 10 + rank, torch::kFloat32).set_requires_grad(true);
  const Routing routing =
      make_routing(some_numbers({kTokens, kUnits}, 20 + rank, torch::kFloat32), 2);
  const TokenAssignments assignments = apply_capacity(routing, capacity);
  EXPECT_LT(assignments.num_kept.item<int64_t>(), kTokens * 2);
  const Sent sent =
      send(x, assignments, UnitPlacement::contiguous(kUnits, grid.expert->size()), grid);
  const torch::Tensor y = send_back(sent.rows_RD * 2, sent);
  (y * some_numbers({kTokens, kWidth}, 30, torch::kFloat32)).sum().backward();
  return {y.detach(), x.grad()};
}

TEST(DispatchRanks, PaddingAndAlignmentChangeNoBit) {  // X2
  for (const int64_t ranks : {1, 2, 4, 8}) {
    run_grid(ranks, 1, [&](RankGrid& grid) {
      // ceil(512 * 0.75 / 8) = 48 is a multiple of 16: alignment adds no room.
      const auto [y, grad] = tight_round_trip({CapacityMode::kCapped, 0.75, 0, 1, {}}, grid);
      for (const int64_t align : {1, 16}) {
        const auto [padded_y, padded_grad] =
            tight_round_trip({CapacityMode::kPadded, 0.75, 0, align, {}}, grid);
        EXPECT_TRUE(torch::equal(y, padded_y));
        EXPECT_TRUE(torch::equal(grad, padded_grad));
      }
    });
  }
}

TEST(DispatchRanks, RanksMayHaveNoTokensOrNoUnits) {  // R8
  run_grid(3, 1, [&](RankGrid& grid) {
    const int64_t tokens = std::vector<int64_t>{2, 10, 0}[static_cast<size_t>(grid.expert->rank())];
    for (const int64_t units : {2, 5}) {
      expect_identity({tokens, 1, units, CapacityMode::kDropless, 1},
                      UnitPlacement::contiguous(units, 3), grid);
    }
  });
}

TEST(DispatchRanks, UnitsMayLiveAnywhere) {
  run_grid(3, 1, [&](RankGrid& grid) {
    expect_identity({20 - 7 * grid.expert->rank(), 3, 6, CapacityMode::kDropless, 1},
                    UnitPlacement({2, 0, 1, 0, 2, 2}, 3), grid);
  });
}

TEST(DispatchRanks, RowsAreSortedByUnitThenSourceRank) {
  run_grid(2, 1, [&](RankGrid& grid) {
    // Rank r holds tokens 10 r + t; token t is routed to unit t % 4.
    const torch::Tensor x =
        (torch::arange(8, torch::kFloat64) + 10.0 * static_cast<double>(grid.expert->rank()))
            .unsqueeze(1);
    Routing routing = make_routing(torch::zeros({8, 4}, torch::kFloat64), 1);
    routing.unit_TK = torch::arange(8).remainder(4).unsqueeze(1);
    const Sent sent = send(x, apply_capacity(routing, {}), UnitPlacement::contiguous(4, 2), grid);
    EXPECT_EQ(sent.plan().rows_u.rows_u(), (Ids{4, 4}));
    const Ids expected = grid.expert->rank() == 0 ? Ids{0, 4, 10, 14, 1, 5, 11, 15}
                                                  : Ids{2, 6, 12, 16, 3, 7, 13, 17};
    EXPECT_EQ(values(sent.rows_RD), expected);
  });
}

TEST(DispatchRanks, CountsAddUpOverSourceRanks) {  // X1
  // Rows for units 0 to 3, of which the first two live on rank 0.
  const std::vector<Ids> counts{{2, 3, 1, 0}, {1, 4, 0, 0}};
  run_grid(2, 1, [&](RankGrid& grid) {
    Ids units;
    const Ids& own = counts[static_cast<size_t>(grid.expert->rank())];
    for (size_t u = 0; u < own.size(); ++u) {
      units.insert(units.end(), static_cast<size_t>(own[u]), static_cast<int64_t>(u));
    }
    const auto num_tokens = static_cast<int64_t>(units.size());
    Routing routing = make_routing(torch::zeros({num_tokens, 4}, torch::kFloat64), 1);
    routing.unit_TK = torch::tensor(units).unsqueeze(1);
    const torch::Tensor x = torch::arange(num_tokens, torch::kFloat64).unsqueeze(1);
    const Sent sent = send(x + 10.0 * static_cast<double>(grid.expert->rank()),
                           apply_capacity(routing, {}), UnitPlacement::contiguous(4, 2), grid);
    if (grid.expert->rank() == 0) {
      EXPECT_EQ(sent.plan().rows_u.rows_u(), (Ids{3, 7}));
      EXPECT_EQ(values(sent.plan().to_units_R), (Ids{0, 1, 5, 2, 3, 4, 6, 7, 8, 9}));
      EXPECT_EQ(values(sent.rows_RD), (Ids{0, 1, 10, 2, 3, 4, 11, 12, 13, 14}));
    } else {
      EXPECT_EQ(sent.plan().rows_u.rows_u(), (Ids{1, 0}));
    }
  });
}

struct ScalarUnit {
  double gradient;     ///< of this rank's unit
  torch::Tensor loss;  ///< this rank's share, [1]
};

/// Two units multiply their rows by a scalar each; a rank's loss is the sum of y^2 / 2 over its two
/// tokens, divided by `num_tokens`.
ScalarUnit train_scalar_unit(const RankGrid& grid, double num_tokens) {
  const bool is_first = grid.expert->rank() == 0;
  const torch::Tensor x = is_first ? torch::tensor({{1.0}, {2.0}}, torch::kFloat64)
                                   : torch::tensor({{3.0}, {-1.0}}, torch::kFloat64);
  Routing routing = make_routing(torch::zeros({2, 2}, torch::kFloat64), 1);
  routing.unit_TK = torch::tensor({{0}, {1}});
  routing.weight_TK = torch::ones({2, 1}, torch::kFloat64);
  const torch::Tensor w =
      torch::full({1}, is_first ? 0.5 : -1.0, torch::kFloat64).set_requires_grad(true);
  const Sent sent = send(x, apply_capacity(routing, {}), UnitPlacement::contiguous(2, 2), grid);
  const torch::Tensor y = send_back(sent.rows_RD * w, sent);
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
    EXPECT_EQ(train_scalar_unit(grid, 2).gradient, 2.5 * sign);
    const ScalarUnit unit = train_scalar_unit(grid, 4);
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
  run_grid(3, 1, [&](RankGrid& grid) {
    torch::Tensor x = some_numbers({8, 3}, 1 + grid.expert->rank()).set_requires_grad(true);
    const Routing routing = make_routing(some_numbers({8, 5}, 20 + grid.expert->rank()), 2);
    const TokenAssignments assignments = apply_capacity(routing, {});
    const Sent expected = send(x, assignments, scattered, grid);
    const Sent found = send(x, padded(assignments), scattered, grid);
    EXPECT_TRUE(torch::equal(expected.rows_RD, found.rows_RD));
    EXPECT_EQ(expected.plan().rows_u.rows_u(), found.plan().rows_u.rows_u());
    EXPECT_TRUE(
        torch::equal(send_back(expected.rows_RD, expected), send_back(found.rows_RD, found)));
  });
}

TEST(DispatchRanks, AsksForNoCountsThatAreKnown) {
  const UnitPlacement scattered({1, 0, 1, 0}, 2);
  run_grid(2, 1, [&](RankGrid& grid) {
    const int64_t num_tokens = 8 + 4 * grid.expert->rank();
    const torch::Tensor x = some_numbers({num_tokens, 3}, 1 + grid.expert->rank());
    const Routing routing =
        make_routing(some_numbers({num_tokens, 4}, 20 + grid.expert->rank()), 2);
    TokenAssignments assignments = apply_capacity(routing, {CapacityMode::kPadded, 1.0, 0, 1, {}});
    const Sent expected = send(x, assignments, scattered, grid);
    const int64_t num_calls = grid.expert->counters().all_to_all;
    assignments.rows_per_unit_E = {4, 6};
    const Sent found = send(x, assignments, scattered, grid);
    EXPECT_EQ(grid.expert->counters().all_to_all, num_calls + 1);
    EXPECT_TRUE(torch::equal(expected.rows_RD, found.rows_RD));
    assignments.rows_per_unit_E = {5, 5};
    EXPECT_THROW(send(x, assignments, scattered, grid), c10::Error);
  });
}

TEST(DispatchRanks, OneExchangeOfCountsThenOneEachWay) {  // X5
  run_grid(2, 1, [&](RankGrid& grid) {
    torch::Tensor x = some_numbers({8, 3}, 1).set_requires_grad(true);
    const Routing routing = make_routing(some_numbers({8, 4}, 2), 2);
    const Sent sent = send(x, apply_capacity(routing, {}), UnitPlacement::contiguous(4, 2), grid);
    EXPECT_EQ(grid.expert->counters().all_to_all, 2);
    const torch::Tensor y = send_back(sent.rows_RD, sent);
    EXPECT_EQ(grid.expert->counters().all_to_all, 3);
    y.sum().backward();
    EXPECT_EQ(grid.expert->counters().all_to_all, 5);
    EXPECT_EQ(grid.expert->counters().all_reduce, 0);
  });
}

TEST(DispatchRanks, UsesNoCountsOfAGroupThatHasFailed) {
  run_grid(2, 1, [](RankGrid& grid) {
    grid.expert = std::make_unique<testing::FailedCommunicator>(std::move(grid.expert));
    const Routing routing = make_routing(some_numbers({8, 4}, 2), 2);
    const auto try_to_send = [&] {
      send(some_numbers({8, 3}, 1), apply_capacity(routing, {}), UnitPlacement::contiguous(4, 2),
           grid);
    };
    EXPECT_THROW(try_to_send(), CommError);
  });
}

}  // namespace
}  // namespace shoal
