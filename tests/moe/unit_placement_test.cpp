#include "moe/unit_placement.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

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
  EXPECT_THROW(UnitPlacement({0, 2}, 2), c10::Error);
}

}  // namespace
}  // namespace shoal
