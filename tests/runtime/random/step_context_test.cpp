#include "runtime/random/step_context.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

TEST(RowIds, CountRowsOfTheWholeStreamBelowTheView) {
  StepContext step;
  step.sample_b = torch::tensor({int64_t{5}, int64_t{2}});
  EXPECT_TRUE(row_ids(step, 1).equal(step.sample_b));
  EXPECT_TRUE(row_ids(step, 3).equal(torch::tensor({15, 16, 17, 6, 7, 8}, torch::kInt64)));
  step.view_b = torch::tensor({int64_t{0}, int64_t{1}});
  const int64_t view = int64_t{1} << 56;
  EXPECT_TRUE(row_ids(step, 1).equal(torch::tensor({int64_t{5}, view + 2})));
}

TEST(RowIds, TakesNoSamples) {
  StepContext step;
  step.sample_b = torch::empty({0}, torch::kInt64);
  EXPECT_EQ(row_ids(step, 3).numel(), 0);
}

}  // namespace
}  // namespace shoal
