#include "models/tasks/gate_scores.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

TEST(GateScores, LeavePaddingOut) {
  const torch::Tensor is_open =
      torch::tensor({{true, false, false, false}, {true, true, true, false}});
  const torch::Tensor closed = torch::zeros_like(is_open);
  const torch::Tensor length = torch::tensor({2, 4}, torch::kInt64);
  const auto rate = [](const std::vector<NamedSum>& sums) { return mean_of(sums, "gate_rate"); };
  EXPECT_DOUBLE_EQ(rate(GateScores::sums({is_open, closed}, length, {})), 4.0 / 12);
  EXPECT_DOUBLE_EQ(rate(GateScores::sums({is_open, closed}, {}, {})), 4.0 / 16);
}

TEST(GateScores, CountLabelledTokensThatAttendInSomeLayer) {
  const torch::Tensor first = torch::tensor({{true, false, false, false}});
  const torch::Tensor second = torch::tensor({{false, false, true, false}});
  const torch::Tensor label = torch::tensor({{kNoLabel, kNoLabel, int64_t{5}, int64_t{1}}});
  EXPECT_DOUBLE_EQ(mean_of(GateScores::sums({first, second}, {}, label), "gate_recall"), 0.5);
}

}  // namespace
}  // namespace shoal
