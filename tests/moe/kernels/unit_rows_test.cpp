#include "moe/kernels/unit_rows.h"

#include <gtest/gtest.h>

// R rows on this rank  u units on this rank
namespace shoal {
namespace {

using Ids = std::vector<int64_t>;

// A tensor of the CPU stands for one of a GPU: the host is not told what is in it.
TEST(UnitRows, ThatOnlyTheDeviceKnowsAreSums) {
  const UnitRows rows(torch::tensor(Ids{2, 0, 3}, torch::kInt64));
  EXPECT_FALSE(rows.is_on_host());
  EXPECT_TRUE(torch::equal(rows.end_u(), torch::tensor({2, 2, 5}, torch::kInt32)));
  EXPECT_THROW(rows.rows_u(), c10::Error);
  EXPECT_EQ(rows.to_host(), (Ids{2, 0, 3}));
}

TEST(UnitRows, OfAPartFollowUnitsWithoutRows) {
  const UnitRows rows(Ids{0, 0, 3, 4}, torch::tensor({0, 0, 3, 7}, torch::kInt32));
  const UnitRows part = rows.part({2, 1});
  EXPECT_EQ(part.rows_u(), (Ids{3}));
  EXPECT_TRUE(torch::equal(part.end_u(), torch::tensor({3}, torch::kInt32)));
  EXPECT_THROW(rows.part({3, 1}), c10::Error);
}

TEST(PartOf, SharesUnitsInRuns) {
  const auto firsts = [](int64_t num_units, int64_t num_parts) {
    Ids firsts;
    int64_t next = 0;
    for (int64_t part = 0; part < num_parts; ++part) {
      const UnitRange range = part_of(num_units, part, num_parts);
      EXPECT_EQ(range.first, next);
      next += range.count;
      firsts.push_back(range.first);
    }
    EXPECT_EQ(next, num_units);
    return firsts;
  };
  EXPECT_EQ(firsts(8, 4), (Ids{0, 2, 4, 6}));
  EXPECT_EQ(firsts(5, 3), (Ids{0, 1, 3}));
  EXPECT_EQ(firsts(1, 2), (Ids{0, 0}));
  EXPECT_EQ(firsts(0, 2), (Ids{0, 0}));
}

TEST(UnitRows, LeaveRowsBehindThemOut) {
  const torch::Tensor x = torch::arange(14, torch::kFloat64).view({7, 2}).set_requires_grad(true);
  const auto run = [](const torch::Tensor& rows, const Ids& counts) {
    EXPECT_EQ(rows.size(0), 5);
    EXPECT_EQ(counts, (Ids{2, 0, 3}));
    return rows * 2;
  };
  const UnitRows counts(torch::tensor(Ids{2, 0, 3}, torch::kInt64));
  const torch::Tensor y = run_on_host_counts(x, counts, run);
  EXPECT_TRUE(torch::equal(y.narrow(0, 0, 5), x.narrow(0, 0, 5) * 2));
  EXPECT_TRUE(torch::equal(y.narrow(0, 5, 2), torch::zeros({2, 2}, torch::kFloat64)));
  y.sum().backward();
  EXPECT_EQ(x.grad().sum().item<double>(), 20.0);
}

}  // namespace
}  // namespace shoal
