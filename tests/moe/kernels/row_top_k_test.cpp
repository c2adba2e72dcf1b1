#include "moe/kernels/row_top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/moe/routing/make_routing.h"
#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using testing::some_numbers;
using testing::values;
using Ids = std::vector<int64_t>;

TEST(TopK, TakesTheHighestFirst) {
  const torch::Tensor score = torch::tensor({{0.1, 0.9, 0.5, 0.7}, {4.0, 3.0, 2.0, 1.0}});
  EXPECT_EQ(values(top_k(score, 2)), (Ids{1, 3, 0, 1}));
  EXPECT_EQ(values(top_k(score, 4)), (Ids{1, 3, 2, 0, 0, 1, 2, 3}));
}

TEST(TopK, TiesGoToTheLowerUnit) {
  const torch::Tensor score = torch::tensor({{1.0, 2.0, 2.0, 1.0, 2.0}});
  EXPECT_EQ(values(top_k(score, 2)), (Ids{1, 2}));
  EXPECT_EQ(values(top_k(score, 4)), (Ids{1, 2, 4, 0}));
  EXPECT_EQ(values(top_k(torch::zeros({1, 4}), 3)), (Ids{0, 1, 2}));
}

TEST(TopK, EqualsAStableSort) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    // Rounded, so that there are many ties.
    const torch::Tensor score = (some_numbers({300, 11}, 1) * 4).round().to(dtype);
    const Ids chosen = values(top_k(score, 5));
    for (int64_t t = 0; t < 300; ++t) {
      Ids order(11);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return score[t][a].item<double>() > score[t][b].item<double>();
      });
      EXPECT_TRUE(std::equal(order.begin(), order.begin() + 5, chosen.begin() + t * 5)) << t;
    }
  }
}

TEST(TopK, GivesDistinctUnitsWhateverTheScores) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const torch::Tensor score =
      torch::tensor({{nan, nan, nan}, {-inf, nan, 1.0}, {nan, -inf, -inf}}, torch::kFloat64);
  EXPECT_EQ(values(top_k(score, 2)), (Ids{0, 1, 2, 0, 0, 1}));
}

TEST(TopK, TakesNoTokensAndRefusesTooManyUnits) {
  EXPECT_EQ(top_k(torch::zeros({0, 4}), 2).sizes(), (std::vector<int64_t>{0, 2}));
  EXPECT_THROW(top_k(torch::zeros({3, 4}), 5), c10::Error);
  EXPECT_THROW(top_k(torch::zeros({3, 4}), 0), c10::Error);
}

TEST(MarkLowest, MarksPerGroupAndKeepsTheLowerTokenOfATie) {
  const torch::Tensor score = torch::tensor({0.3, 0.1, 0.1, 0.5, 0.2, 0.2, 0.2});
  const torch::Tensor mark = mark_lowest(score, {0, 4, 7}, {1, 2});
  EXPECT_EQ(values(mark), (Ids{0, 0, 1, 0, 0, 1, 1}));
}

TEST(MarkLowest, TakesEmptyGroupsWholeGroupsAndNans) {
  const torch::Tensor score = torch::tensor({0.3, std::nan(""), 0.1});
  EXPECT_EQ(values(mark_lowest(score, {0, 0, 3}, {0, 1})), (Ids{0, 1, 0}));
  EXPECT_EQ(values(mark_lowest(score, {0, 3}, {3})), (Ids{1, 1, 1}));
  EXPECT_EQ(values(mark_lowest(score, {0, 3}, {0})), (Ids{0, 0, 0}));
}

}  // namespace
}  // namespace shoal
