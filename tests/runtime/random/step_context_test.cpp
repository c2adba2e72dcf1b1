#include "runtime/random/step_context.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

TEST(RowIds, CountRowsOfTheWholeStreamBelowTheView) {
  StepContext step;
  step.sample_b = torch::tensor({int64_t{5}, int64_t{2}});
  EXPECT_TRUE(row_ids(step, 1).equal(step.sample_b));
  EXPECT_TRUE(row_ids(step, 3).equal(torch::tensor({15, 16, 17, 6, 7, 8}, torch::kInt64)));
  EXPECT_TRUE(row_ids(step, 2, 3).equal(row_ids(step, 6)));
  EXPECT_FALSE(token_mask(step, 3).defined());
  step.view_b = torch::tensor({int64_t{0}, int64_t{1}});
  const int64_t view = int64_t{1} << 56;
  EXPECT_TRUE(row_ids(step, 1).equal(torch::tensor({int64_t{5}, view + 2})));
}

TEST(RowIds, AreIndependentOfPaddingWhereLengthsAreKnown) {
  StepContext step;
  step.sample_b = torch::tensor({int64_t{5}, int64_t{2}});
  step.length_b = torch::tensor({int64_t{1}, int64_t{2}});
  const int64_t room = 1 << 20;
  for (const int64_t S : {2, 3, 7}) {
    const torch::Tensor one = row_ids(step, S).view({2, S}).narrow(1, 0, 2);
    EXPECT_TRUE(one.equal(
        torch::tensor({{5 * room, 5 * room + 1}, {2 * room, 2 * room + 1}}, torch::kInt64)));
    const torch::Tensor two = row_ids(step, S, 2).view({2, 2, S}).narrow(2, 0, 2);
    EXPECT_TRUE(two[0].equal(
        torch::tensor({{10 * room, 10 * room + 1}, {11 * room, 11 * room + 1}}, torch::kInt64)));
  }
  EXPECT_TRUE(token_mask(step, 3).equal(
      torch::tensor({{1, 0, 0}, {1, 1, 0}}, torch::kInt64).to(torch::kBool)));
  EXPECT_TRUE(narrow_samples(step, 1, 1).length_b.equal(torch::tensor({int64_t{2}})));
}

TEST(RowIds, TakesNoSamples) {
  StepContext step;
  step.sample_b = torch::empty({0}, torch::kInt64);
  EXPECT_EQ(row_ids(step, 3).numel(), 0);
}

}  // namespace
}  // namespace shoal
