#include "moe/exchange/row_route.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

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

struct Result {
  torch::Tensor y, x_grad, weight_grad;
};

/// Outputs of units: unit u multiplies its rows by u + 1, and by their weights.
torch::Tensor outputs(const ArrivedRows& arrived, const std::vector<int64_t>& units) {
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
  const auto exchanges =
      plan_exchange({apply_capacity(routing, capacity)}, placement, grid, options, num_parts);
  for (const auto& exchange : exchanges) exchange->start_dispatch(x);
  for (const auto& exchange : exchanges) {
    exchange->start_combine(outputs(exchange->finish_dispatch(), placement.units_of_rank(rank)));
  }
  torch::Tensor y = torch::zeros_like(x);
  for (const auto& exchange : exchanges) y = y + exchange->finish_combine();
  (y * some_numbers({kTokens, kWidth}, 30 + rank)).sum().backward();
  return {y.detach(), x.grad(), weight.grad()};
}

TEST(RowExchangeRanks, TwoLevelsEqualOne) {
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

TEST(RowExchangeRanks, PartsOfUnitsTakeAllRows) {
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

TEST(RowExchangeRanks, BetweenNodesATokenIsSentOnceToEachOtherNode) {
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
        const auto exchanges =
            plan_exchange({apply_capacity(routing, {})}, placement, grid, {.hierarchical = true});
        const int64_t before = grid.inter_node->counters().sent_bytes;
        exchanges.front()->start_dispatch(x);
        const int64_t row_bytes = kWidth * static_cast<int64_t>(sizeof(double));
        // The choices' weights fill as many further rows as they need.
        const int64_t weight_rows = (choices + kWidth - 1) / kWidth;
        EXPECT_EQ(grid.inter_node->counters().sent_bytes - before,
                  (static_cast<int64_t>(pairs.size()) + weight_rows) * row_bytes);
        const torch::Tensor rows = exchanges.front()->finish_dispatch().rows_RD;
        const int64_t received = grid.inter_node->counters().sent_bytes;
        exchanges.front()->start_combine(rows);
        exchanges.front()->finish_combine();
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

TEST(RowExchangeRanks, PayloadRoundsAlikeOnAnyNumberOfRanks) {
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

TEST(RowExchangeRanks, UsesNoCountsOfNodesThatHaveFailed) {
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
