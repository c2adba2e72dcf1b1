#include "sparse/patterns/best_cells.h"

#include <gtest/gtest.h>

#include "tests/sparse/patterns/pattern_fixture.h"

namespace shoal {
namespace {

using testing::bools;
using testing::mask_of;
using testing::uniform_numbers;

TEST(BestCells, AreTheHighestAndOfEqualOnesTheFirst) {
  const torch::Tensor score = torch::tensor({1.0, 3.0, 2.0, 3.0, 2.0, 2.0});
  EXPECT_TRUE(torch::equal(best_cells(score, 0), bools({0, 0, 0, 0, 0, 0})));
  EXPECT_TRUE(torch::equal(best_cells(score, 1), bools({0, 1, 0, 0, 0, 0})));
  EXPECT_TRUE(torch::equal(best_cells(score, 3), bools({0, 1, 1, 1, 0, 0})));
  EXPECT_TRUE(torch::equal(best_cells(score, 4), bools({0, 1, 1, 1, 1, 0})));
  EXPECT_TRUE(torch::equal(best_cells(score, 9), bools({1, 1, 1, 1, 1, 1})));
}

TEST(BestCells, LeaveOutThoseThatAreNotEligible) {
  const torch::Tensor score = torch::tensor({1.0, 3.0, 0.0, 3.0, 0.0, -1.0});
  const torch::Tensor eligible = bools({1, 0, 1, 1, 1, 1});
  EXPECT_TRUE(torch::equal(best_cells(score, 3, eligible), bools({1, 0, 1, 1, 0, 0})));
  EXPECT_TRUE(torch::equal(best_cells(score, 5, eligible), eligible));
  EXPECT_TRUE(
      torch::equal(best_cells(score, 1, bools({0, 0, 0, 0, 0, 0})), bools({0, 0, 0, 0, 0, 0})));
}

TEST(BestCells, AreTheFirstOfTheSortedScores) {
  for (uint64_t number = 0; number < 50; ++number) {
    // Few different scores, so that many are equal.
    const torch::Tensor score = (uniform_numbers(97, number) * 7).floor();
    const torch::Tensor eligible = uniform_numbers(97, 100 + number) < 0.6;
    const auto count = static_cast<int64_t>(number);
    const torch::Tensor order =
        std::get<1>(torch::sort(score.masked_fill(~eligible, -1.0), /*stable=*/true, 0, true));
    const torch::Tensor expected =
        torch::zeros({97}, torch::kBool).index_fill(0, order.narrow(0, 0, count), true) & eligible;
    EXPECT_TRUE(torch::equal(best_cells(score, count, eligible), expected)) << number;
  }
}

TEST(BestOfRows, TakesAsManyOfEachRow) {
  const torch::Tensor score = torch::tensor({{1.0, 1.0, 2.0}, {0.0, 5.0, 0.0}});
  EXPECT_TRUE(torch::equal(best_of_rows(score, 2), mask_of({{1, 0, 1}, {1, 1, 0}})));
  EXPECT_TRUE(torch::equal(best_of_rows(score, 4), mask_of({{1, 1, 1}, {1, 1, 1}})));
}

}  // namespace
}  // namespace shoal
