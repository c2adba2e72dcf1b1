#include "moe/exchange/dispatch_plan.h"

#include <gtest/gtest.h>

#include "tests/moe/routing/make_routing.h"

// Plans from counts, without a communicator.
namespace shoal {
namespace {

using testing::values;
using Ids = std::vector<int64_t>;

torch::Tensor ids(const Ids& values) { return torch::tensor(values, torch::kInt64); }

/// Rows sorted by unit: row i is of token_A[i] and has the weight i.
TokenAssignments assignments_of(const Ids& token_A, const Ids& rows_U, int64_t num_tokens) {
  TokenAssignments assignments;
  assignments.token_A = ids(token_A);
  assignments.weight_A = torch::arange(static_cast<int64_t>(token_A.size()), torch::kFloat64);
  assignments.rows_U = ids(rows_U);
  assignments.num_tokens = num_tokens;
  return assignments;
}

const PackedType kType{torch::kFloat32, torch::kFloat32, 4};

Ids runs(const Ids& first_V, const Ids& rows_V, int64_t total) {
  return values(indices_of_runs(ids(first_V), ids(rows_V), total));
}

TEST(DispatchPlan, RegroupsRunsOfRows) {  // X1
  EXPECT_EQ(runs({0, 5, 2, 6}, {2, 1, 3, 4}, 10), (Ids{0, 1, 5, 2, 3, 4, 6, 7, 8, 9}));
  EXPECT_EQ(runs({0, 2, 2, 3}, {2, 1, 0, 4}, 7), (Ids{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(runs({0, 2, 0, 3}, {0, 1, 2, 0}, 3), (Ids{2, 0, 1}));
  EXPECT_EQ(runs({0, 0}, {0, 0}, 0), (Ids{}));
  EXPECT_EQ(runs({}, {}, 0), (Ids{}));
}

TEST(DispatchPlan, FollowsFromCountsAlone) {
  // Rank 0 of two holds units 1 and 2, rank 1 units 0 and 3. Unit 0 has tokens 0 and 1, unit 1
  // token 0, unit 2 none, unit 3 token 1. Rank 1 sends this rank one row for each of its units.
  const UnitPlacement placement({1, 0, 0, 1}, 2);
  const auto pieces =
      cut_into_pieces({assignments_of({0, 1, 0, 1}, {2, 1, 0, 1}, 2)}, placement, 1);
  EXPECT_EQ(values(rows_to_send(pieces, placement)), (Ids{1, 0, 2, 1}));
  const Ids received{1, 0, 1, 1};
  const DispatchPlan plan =
      make_plans(pieces, placement, {{1, 0, 2, 1}, received, ids(received).view({2, 1, 2})}, kType)
          .front();
  EXPECT_EQ(plan.send_rows, (RowCounts{1, 3}));
  EXPECT_EQ(plan.recv_rows, (RowCounts{1, 2}));
  EXPECT_EQ(values(plan.index.token_A), (Ids{0, 0, 1, 1}));
  EXPECT_EQ(values(plan.order_A), (Ids{2, 0, 1, 3}));
  EXPECT_EQ(values(weights_to_send(pieces.front().assignments.weight_A, plan)), (Ids{2, 0, 1, 3}));
  // A token's rows are listed by unit, not in the order sent.
  EXPECT_EQ(values(plan.index.row_A), (Ids{1, 0, 2, 3}));
  EXPECT_EQ(plan.rows_u.rows_u(), (Ids{2, 1}));
  EXPECT_FALSE(plan.to_units_R.defined());  // by (rank, unit) is by (unit, rank) here
}

TEST(DispatchPlan, SortsWhatArrivesByUnit) {
  const UnitPlacement placement = UnitPlacement::contiguous(4, 2);
  const auto pieces = cut_into_pieces({assignments_of({0, 0}, {1, 1, 0, 0}, 1)}, placement, 1);
  const Ids received{1, 1, 2, 1};  // by (rank, unit)
  const DispatchPlan plan =
      make_plans(pieces, placement, {{1, 1, 0, 0}, received, ids(received).view({2, 1, 2})}, kType)
          .front();
  EXPECT_EQ(plan.rows_u.rows_u(), (Ids{3, 2}));
  EXPECT_EQ(values(plan.to_units_R), (Ids{0, 2, 3, 1, 4}));
  EXPECT_EQ(values(plan.to_arrival_R), (Ids{0, 3, 1, 2, 4}));
}

TEST(DispatchPlan, PartsOfUnitsShareTheRows) {
  // Four units on two ranks: part 0 has units 0 and 2, part 1 units 1 and 3.
  const UnitPlacement placement = UnitPlacement::contiguous(4, 2);
  const auto pieces =
      cut_into_pieces({assignments_of({0, 1, 0, 1, 2}, {2, 1, 1, 1}, 3)}, placement, 2);
  EXPECT_EQ(values(rows_to_send(pieces, placement)), (Ids{2, 0, 1, 0, 0, 1, 0, 1}));
  const Ids received(8, 0);
  const auto plans =
      make_plans(pieces, placement,
                 {{2, 0, 1, 0, 0, 1, 0, 1}, received, ids(received).view({2, 2, 2})}, kType);
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(values(plans[0].order_A), (Ids{0, 1, 3}));
  EXPECT_EQ(values(plans[1].order_A), (Ids{2, 4}));
  EXPECT_EQ(values(plans[1].index.token_A), (Ids{0, 2}));
  EXPECT_EQ(plans[0].send_rows, (RowCounts{2, 1}));
  EXPECT_EQ(plans[1].send_rows, (RowCounts{1, 1}));
}

TEST(DispatchPlan, IgnoresTrailingPaddingRows) {
  const UnitPlacement placement = UnitPlacement::contiguous(2, 2);
  const auto pieces = cut_into_pieces({assignments_of({1, 0, -1, -1}, {1, 1}, 2)}, placement, 1);
  const Ids received{1, 0};
  const DispatchPlan plan =
      make_plans(pieces, placement, {{1, 1}, received, ids(received).view({2, 1, 1})}, kType)
          .front();
  EXPECT_EQ(values(plan.index.token_A), (Ids{1, 0}));
  EXPECT_EQ(weights_to_send(pieces.front().assignments.weight_A, plan).size(0), 2);
}

TEST(DispatchPlan, KnownCountsAreThoseThatRanksAnnounce) {
  // Rank 0 has 3 rows a unit, rank 1 5; rank 1 holds units 0 and 2.
  const UnitPlacement placement({1, 0, 1}, 2);
  TokenAssignments chunk = assignments_of(Ids(9, 0), {3, 3, 3}, 1);
  EXPECT_FALSE(has_known_counts(cut_into_pieces({chunk}, placement, 1)));
  chunk.rows_per_unit_E = {3, 5};
  const auto pieces = cut_into_pieces({chunk}, placement, 1);
  EXPECT_TRUE(has_known_counts(pieces));
  const DispatchCounts counts = known_counts(pieces, placement, 0);
  EXPECT_EQ(counts.sent_CV, (Ids{3, 3, 3}));
  EXPECT_EQ(counts.received_ECu, (Ids{3, 5}));
  EXPECT_EQ(counts.device_ECu.sizes(), at::IntArrayRef({2, 1, 1}));
  EXPECT_THROW(known_counts(pieces, placement, 1), c10::Error);  // these are rank 0's rows
}

TEST(DispatchPlan, RefusesAPlacementOfOtherUnits) {
  EXPECT_THROW(
      cut_into_pieces({assignments_of({0}, {1, 0}, 1)}, UnitPlacement::contiguous(3, 1), 1),
      c10::Error);
}

}  // namespace
}  // namespace shoal
