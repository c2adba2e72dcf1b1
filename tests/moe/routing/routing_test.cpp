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

TEST(TokenContext, LeavesPaddingOut) {
  StepContext step = step_with({5, 2, 7}, 2);
  step.length_b = torch::tensor({1, 3, 2}, torch::kInt64);
  for (const int64_t rows : {3, 4, 9}) {
    const TokenContext context = make_token_context(step, 7, rows);
    EXPECT_EQ(context.sample_offsets, (Ids{0, 1, 4, 6}));
    EXPECT_EQ(context.group_offsets, (Ids{0, 4, 6}));
    EXPECT_EQ(values(context.row_T), (Ids{0, rows, rows + 1, rows + 2, 2 * rows, 2 * rows + 1}));
    const int64_t room = 1 << 20;  // independent of the padding
    EXPECT_EQ(values(token_ids(context)),
              (Ids{5 * room, 2 * room, 2 * room + 1, 2 * room + 2, 7 * room, 7 * room + 1}));
    const torch::Tensor row = torch::arange(3 * rows).unsqueeze(1);
    const torch::Tensor kept = context.put_back(context.take_tokens(row));
    EXPECT_EQ(kept.sizes(), row.sizes());
    EXPECT_EQ(kept.sum().item<int64_t>(), context.row_T.sum().item<int64_t>());
  }
  EXPECT_THROW(make_token_context(step, 7, 2), c10::Error) << "a length above the rows";
  step.length_b = torch::tensor({1, 3}, torch::kInt64);
  EXPECT_THROW(make_token_context(step, 7, 3), c10::Error) << "a sample without a length";
  step.length_b = torch::tensor({3, 3, 3}, torch::kInt64);
  EXPECT_FALSE(make_token_context(step, 7, 3).row_T.defined()) << "no padding";
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
