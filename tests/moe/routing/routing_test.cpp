#include "moe/routing/routing.h"

#include <gtest/gtest.h>

#include "tests/moe/routing/make_routing.h"

namespace shoal {
namespace {

using testing::values;
using Ids = std::vector<int64_t>;

StepContext step_with(const Ids& samples, int64_t samples_per_group) {
  StepContext step;
  step.sample_b = torch::tensor(samples, torch::kInt64);
  step.samples_per_group = samples_per_group;
  return step;
}

TEST(TokenContext, GroupsAreRunsOfSamplesTheLastMayBeShort) {
  const StepContext step = step_with({8, 9, 10, 11, 12}, 2);
  const TokenContext context = make_token_context(step, 7, 3);
  EXPECT_EQ(context.group_offsets, (Ids{0, 6, 12, 15}));
  EXPECT_EQ(context.num_tokens(), 15);
  const StepContext none = step_with({}, 2);
  EXPECT_EQ(make_token_context(none, 7, 3).group_offsets, (Ids{0}));
  const StepContext wrong = step_with({8}, 0);
  EXPECT_THROW(make_token_context(wrong, 7, 3), c10::Error);
}

TEST(TokenContext, IdsCountRowsOfTheWholeStreamBelowTheView) {
  StepContext step = step_with({5, 2}, 2);
  EXPECT_EQ(values(token_ids(make_token_context(step, 7, 3))), (Ids{15, 16, 17, 6, 7, 8}));
  step.view_b = torch::tensor({int64_t{0}, int64_t{1}});
  const int64_t view = int64_t{1} << 56;
  EXPECT_EQ(values(token_ids(make_token_context(step, 7, 3))),
            (Ids{15, 16, 17, view + 6, view + 7, view + 8}));
}

}  // namespace
}  // namespace shoal
