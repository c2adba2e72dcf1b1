#include "moe/exchange/row_route.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "moe/exchange/dispatch.h"
#include "runtime/base/error.h"
#include "tests/moe/routing/make_routing.h"
#include "tests/support/forwarding_communicator.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"

// T tokens  D width  U units  K choices per token
namespace shoal {
namespace {

using testing::make_routing;
using testing::run_grid;
using testing::some_numbers;

constexpr int64_t kTokens = 20, kWidth = 6, kUnits = 8;
const PackedType kTokenType{torch::kFloat64, torch::kFloat64, kWidth};

struct Result {
  torch::Tensor y, x_grad, weight_grad;
};

/// Outputs of units: unit u multiplies its rows by u + 1, and by their weights.
torch::Tensor outputs(const Dispatched& arrived, const std::vector<int64_t>& units) {
  const std::vector<int64_t>& rows_u = arrived.rows_u.rows_u();
  std::vector<torch::Tensor> rows{arrived.rows_RD.narrow(0, 0, 0)};
  int64_t first = 0;
  for (size_t u = 0; u < rows_u.size(); ++u) {
    rows.push_back(arrived.rows_RD.narrow(0, first, rows_u[u]) * static_cast<double>(units[u] + 1));
    first += rows_u[u];
  }
  return torch::cat(rows) * arrived.weight_R.unsqueeze(1);
}

/// A round trip, of all units at once or in parts.
Result round_trip(const ExchangeOptions& options, const UnitPlacement& placement, RankGrid& grid,
                  const Capacity& capacity = {}, int64_t num_parts = 1) {
  const int64_t rank = grid.expert->rank();
  torch::Tensor x = some_numbers({kTokens, kWidth}, 10 + rank).set_requires_grad(true);
  Routing routing = make_routing(some_numbers({kTokens, kUnits}, 20 + rank), 3);
  torch::Tensor weight = routing.weight_TK.detach().clone().set_requires_grad(true);
  routing.weight_TK = weight;
  const TokenAssignments assignments = apply_capacity(routing, capacity);
  const std::vector<RowRoute> routes =
      start_routes({assignments}, placement, grid, options, {kTokenType, num_parts}).wait();
  std::vector<DispatchInFlight> there;
  for (const RowRoute& route : routes) {
    there.push_back(start_dispatch(x, assignments.weight_A, route.first));
  }
  std::vector<CombineInFlight> back;
  for (size_t i = 0; i < routes.size(); ++i) {
    const Dispatched arrived = finish_dispatch(std::move(there[i]), routes[i]);
    back.push_back(start_combine(outputs(arrived, placement.units_of_rank(rank)), routes[i]));
  }
  torch::Tensor y = torch::zeros_like(x);
  for (size_t i = 0; i < routes.size(); ++i) {
    y = y + finish_combine(std::move(back[i]), routes[i].first);
  }
  (y * some_numbers({kTokens, kWidth}, 30 + rank)).sum().backward();
  return {y.detach(), x.grad(), weight.grad()};
}

TEST(RowRouteRanks, TwoLevelsEqualOne) {
  const std::vector<UnitPlacement> placements{
      UnitPlacement::contiguous(kUnits, 4), UnitPlacement({3, 0, 1, 0, 2, 2, 1, 3}, 4),
      UnitPlacement({0, 0, 0, 0, 3, 3, 3, 3}, 4)};  // two ranks hold nothing
  for (const UnitPlacement& placement : placements) {
    for (const int64_t ranks_per_node : {1, 2}) {
      for (const CapacityMode mode : {CapacityMode::kDropless, CapacityMode::kPadded}) {
        run_grid(
            4, 1,
            [&](RankGrid& grid) {
              const Capacity capacity{mode, 0.8, 1, 1, {}};
              const Result flat = round_trip({}, placement, grid, capacity);
              const Result levels = round_trip({.hierarchical = true}, placement, grid, capacity);
              EXPECT_LT((flat.y - levels.y).abs().max().item<double>(), 1e-13);
              EXPECT_LT((flat.x_grad - levels.x_grad).abs().max().item<double>(), 1e-13);
              EXPECT_LT((flat.weight_grad - levels.weight_grad).abs().max().item<double>(), 1e-13);
            },
            ranks_per_node);
      }
    }
  }
}

TEST(RowRouteRanks, PartsOfUnitsTakeAllRows) {
  const std::vector<UnitPlacement> placements{
      UnitPlacement::contiguous(kUnits, 2), UnitPlacement({1, 0, 1, 0, 0, 0, 1, 1}, 2),
      UnitPlacement({0, 0, 1, 0, 0, 0, 0, 0}, 2)};  // one rank has units for one part only
  for (const UnitPlacement& placement : placements) {
    for (const int64_t num_parts : {2, 3, 4}) {
      for (const CapacityMode mode : {CapacityMode::kDropless, CapacityMode::kPadded}) {
        run_grid(2, 1, [&](RankGrid& grid) {
          const Capacity capacity{mode, 0.8, 1, 1, {}};
          const Result whole = round_trip({}, placement, grid, capacity);
          const int64_t before = grid.expert->counters().all_to_all;
          const Result parts = round_trip({}, placement, grid, capacity, num_parts);
          // One exchange of counts; then rows there and back, forward and backward.
          EXPECT_EQ(grid.expert->counters().all_to_all - before, 1 + 4 * num_parts);
          EXPECT_LT((whole.y - parts.y).abs().max().item<double>(), 1e-13);
          EXPECT_LT((whole.x_grad - parts.x_grad).abs().max().item<double>(), 1e-13);
          EXPECT_LT((whole.weight_grad - parts.weight_grad).abs().max().item<double>(), 1e-13);
        });
      }
    }
  }
}

TEST(RowRouteRanks, BetweenNodesATokenIsSentOnceToEachOtherNode) {
  const UnitPlacement placement = UnitPlacement::contiguous(kUnits, 4);
  run_grid(
      4, 1,
      [&](RankGrid& grid) {
        const int64_t rank = grid.expert->rank();
        const torch::Tensor x = some_numbers({kTokens, kWidth}, 10 + rank);
        const Routing routing = make_routing(some_numbers({kTokens, kUnits}, 20 + rank), 3);
        std::set<std::pair<int64_t, int64_t>> pairs;  // (token, other node)
        int64_t choices = 0;                          // of units on the other node
        for (int64_t token = 0; token < kTokens; ++token) {
          for (int64_t k = 0; k < 3; ++k) {
            const int64_t unit = routing.unit_TK[token][k].item<int64_t>();
            const int64_t node = placement.rank_of_unit()[static_cast<size_t>(unit)] / 2;
            if (node == rank / 2) continue;
            pairs.emplace(token, node);
            ++choices;
          }
        }
        const TokenAssignments assignments = apply_capacity(routing, {});
        PendingRoutes pending =
            start_routes({assignments}, placement, grid, {.hierarchical = true}, {kTokenType});
        const int64_t before = grid.inter_node->counters().sent_bytes;
        DispatchInFlight there = start_dispatch(x, assignments.weight_A, pending.first(0));
        const int64_t row_bytes = kWidth * static_cast<int64_t>(sizeof(double));
        // The choices' weights fill as many further rows as they need.
        const int64_t weight_rows = (choices + kWidth - 1) / kWidth;
        EXPECT_EQ(grid.inter_node->counters().sent_bytes - before,
                  (static_cast<int64_t>(pairs.size()) + weight_rows) * row_bytes);
        const RowRoute route = std::move(pending).wait().front();
        const torch::Tensor rows = finish_dispatch(std::move(there), route).rows_RD;
        const int64_t received = grid.inter_node->counters().sent_bytes;
        combine(rows, route);
        // One row goes back for each that came.
        const torch::Tensor sent =
            torch::tensor({static_cast<int64_t>(pairs.size()) * row_bytes,
                           -(grid.inter_node->counters().sent_bytes - received)},
                          torch::kInt64);
        all_reduce(*grid.expert, sent);
        EXPECT_EQ(sent.sum().item<int64_t>(), 0);
      },
      /*ranks_per_node=*/2);
}

TEST(RowRouteRanks, PayloadRoundsAlikeOnAnyNumberOfRanks) {
  std::map<int64_t, torch::Tensor> outputs;
  run_grid(1, 1, [&](RankGrid& grid) {
    outputs[1] =
        round_trip({.payload = Payload::kBfloat16}, UnitPlacement::contiguous(kUnits, 1), grid).y;
    const Result exact = round_trip({}, UnitPlacement::contiguous(kUnits, 1), grid);
    const double apart = (outputs[1] - exact.y).abs().max().item<double>();
    EXPECT_GT(apart, 0.0);
    EXPECT_LT(apart, exact.y.abs().max().item<double>() / 64);
  });
  run_grid(2, 1, [&](RankGrid& grid) {
    const Result result =
        round_trip({.payload = Payload::kBfloat16}, UnitPlacement::contiguous(kUnits, 2), grid);
    if (grid.expert->rank() == 0) {
      EXPECT_TRUE(torch::equal(result.y, outputs[1]));
    }
  });
}

TEST(RowRouteRanks, InTwoLevelsRowsLeaveBeforeTheCountsInsideTheNodeAreThere) {
  run_grid(
      4, 1,
      [](RankGrid& grid) {
        grid.intra_node = std::make_unique<testing::FailedCommunicator>(std::move(grid.intra_node));
        const Routing routing = make_routing(some_numbers({kTokens, kUnits}, 2), 3);
        PendingRoutes pending =
            start_routes({apply_capacity(routing, {})}, UnitPlacement::contiguous(kUnits, 4), grid,
                         {.hierarchical = true}, {kTokenType});
        EXPECT_EQ(pending.first(0).plan.send_rows.size(), 2u);
        EXPECT_THROW(std::move(pending).wait(), CommError);
      },
      /*ranks_per_node=*/2);
}

TEST(RowRouteRanks, UsesNoCountsOfNodesThatHaveFailed) {
  run_grid(
      2, 1,
      [](RankGrid& grid) {
        grid.inter_node = std::make_unique<testing::FailedCommunicator>(std::move(grid.inter_node));
        const auto exchange = [&] {
          round_trip({.hierarchical = true}, UnitPlacement::contiguous(kUnits, 2), grid);
        };
        EXPECT_THROW(exchange(), CommError);
      },
      /*ranks_per_node=*/1);
}

}  // namespace
}  // namespace shoal
