#include "moe/kernels/count_ids.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

TEST(CountIds, LeavesNegativeOnesOut) {
  const torch::Tensor ids = torch::tensor({2, -1, 0, 2, -1, 2}, torch::kInt64).view({3, 2});
  EXPECT_TRUE(torch::equal(count_ids(ids, 4), torch::tensor({1, 0, 3, 0}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(count_ids(ids.t(), 3), torch::tensor({1, 0, 3}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(count_ids(ids.slice(0, 0, 0), 2), torch::zeros({2}, torch::kInt64)));
}

TEST(CountIds, RefusesOneBeyondTheLast) {
  EXPECT_THROW(count_ids(torch::tensor({0, 3}, torch::kInt64), 3), c10::Error);
}

}  // namespace
}  // namespace shoal
