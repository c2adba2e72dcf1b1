#include "moe/exchange/unit_placement.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>

namespace shoal {
namespace {

using Ids = std::vector<int64_t>;

TEST(UnitPlacement, SharesUnitsEquallyInRuns) {
  const UnitPlacement placement = UnitPlacement::contiguous(6, 3);
  EXPECT_EQ(placement.units_of_rank(0), (Ids{0, 1}));
  EXPECT_EQ(placement.units_of_rank(1), (Ids{2, 3}));
  EXPECT_EQ(placement.units_of_rank(2), (Ids{4, 5}));
  EXPECT_TRUE(placement.is_contiguous());
}

TEST(UnitPlacement, FirstRanksHoldOneMoreWhenItIsUneven) {
  const UnitPlacement placement = UnitPlacement::contiguous(4, 3);
  EXPECT_EQ(placement.units_of_rank(0), (Ids{0, 1}));
  EXPECT_EQ(placement.units_of_rank(1), (Ids{2}));
  EXPECT_EQ(placement.units_of_rank(2), (Ids{3}));
}

TEST(UnitPlacement, KnowsTheFewestUnitsOfARankThatHasSome) {
  EXPECT_EQ(UnitPlacement::contiguous(7, 2).fewest_units(), 3);
  EXPECT_EQ(UnitPlacement({2, 2, 0, 2, 0}, 3).fewest_units(), 2);
  EXPECT_EQ(UnitPlacement::contiguous(0, 2).fewest_units(), 0);
}

TEST(UnitPlacement, RanksMayHoldNothing) {
  const UnitPlacement placement = UnitPlacement::contiguous(2, 4);
  EXPECT_EQ(placement.units_of_rank(1), (Ids{1}));
  EXPECT_EQ(placement.units_of_rank(3), (Ids{}));
  EXPECT_EQ(placement.num_units(), 2);
  EXPECT_EQ(placement.num_ranks(), 4);
}

TEST(UnitPlacement, TakesAnyAssignmentOfUnitsToRanks) {
  const UnitPlacement placement({1, 0, 1, 0, 0}, 2);
  EXPECT_EQ(placement.units_of_rank(0), (Ids{1, 3, 4}));
  EXPECT_EQ(placement.units_of_rank(1), (Ids{0, 2}));
  EXPECT_FALSE(placement.is_contiguous());
  EXPECT_EQ(placement.rank_of_unit(), (Ids{1, 0, 1, 0, 0}));
  EXPECT_EQ(placement.units_by_rank(), (Ids{1, 3, 4, 0, 2}));
  EXPECT_EQ(placement.num_units_of_ranks(), (Ids{3, 2}));
  EXPECT_THROW(UnitPlacement({0, 2}, 2), c10::Error);
}

// Costs 3, 1, 1, 4, 2 on two ranks: unit 3 to rank 0 (4), unit 0 to rank 1 (3), unit 4 to rank 1
// (5), unit 1 to rank 0 (5), unit 2 to rank 0 of the equal ones (6).
TEST(UnitPlacement, ByCostGivesTheDearestFirstToTheRankWithTheLeast) {
  const UnitPlacement placement = UnitPlacement::by_cost({3, 1, 1, 4, 2}, 2);
  EXPECT_EQ(placement.units_of_rank(0), (Ids{1, 2, 3}));
  EXPECT_EQ(placement.units_of_rank(1), (Ids{0, 4}));
  EXPECT_FALSE(placement.is_contiguous());
}

TEST(UnitPlacement, EqualCostsGoRound) {
  const UnitPlacement placement = UnitPlacement::by_cost({1, 1, 1, 1, 1}, 3);
  EXPECT_EQ(placement.units_of_rank(0), (Ids{0, 3}));
  EXPECT_EQ(placement.units_of_rank(1), (Ids{1, 4}));
  EXPECT_EQ(placement.units_of_rank(2), Ids{2});
}

TEST(UnitPlacement, ByCostRefusesCostsThatAreNone) {
  EXPECT_THROW(UnitPlacement::by_cost({1, -1}, 2), c10::Error);
  EXPECT_THROW(UnitPlacement::by_cost({1, std::nan("")}, 2), c10::Error);
}

}  // namespace
}  // namespace shoal
