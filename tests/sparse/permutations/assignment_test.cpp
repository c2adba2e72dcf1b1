#include "sparse/permutations/assignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;

double sum_of(const torch::Tensor& score_nn, const std::vector<int64_t>& chosen) {
  double sum = 0.0;
  for (size_t row = 0; row < chosen.size(); ++row) {
    sum += score_nn[static_cast<int64_t>(row)][chosen[row]].item<double>();
  }
  return sum;
}

/// By trying all.
double largest_sum(const torch::Tensor& score_nn) {
  std::vector<int64_t> chosen(static_cast<size_t>(score_nn.size(0)));
  std::iota(chosen.begin(), chosen.end(), 0);
  double largest = sum_of(score_nn, chosen);
  while (std::ranges::next_permutation(chosen).found) {
    largest = std::max(largest, sum_of(score_nn, chosen));
  }
  return largest;
}

TEST(Assignment, IsNotThatOfTheLargestInEachRow) {
  // Rows 0 and 1 have their largest in column 0, and giving it to row 0, where it is larger, leaves
  // .6 + .1 + .5 or .6 + .2 + .4, less than .5 + .5 + .5.
  const torch::Tensor score_nn =
      torch::tensor({{0.6, 0.5, 0.0}, {0.5, 0.1, 0.2}, {0.1, 0.4, 0.5}}, torch::kFloat64);
  EXPECT_THAT(best_assignment(score_nn), ElementsAre(1, 0, 2));
  EXPECT_NEAR(sum_of(score_nn, {1, 0, 2}), largest_sum(score_nn), 1e-12);
}

TEST(Assignment, HasTheLargestSumOfAll) {
  for (int64_t n = 1; n <= 6; ++n) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const torch::Tensor score_nn = testing::some_numbers({n, n}, seed);
      const std::vector<int64_t> chosen = best_assignment(score_nn);
      EXPECT_THAT(chosen, ::testing::SizeIs(n));
      EXPECT_NEAR(sum_of(score_nn, chosen), largest_sum(score_nn), 1e-12) << n << ", " << seed;
    }
  }
}

TEST(Assignment, TakesTheMaximaOfRowsWhereTheyAreOne) {
  const torch::Tensor score_nn = torch::tensor({{0., 0., 1.}, {1., 0., 0.}, {0., 1., 0.}});
  EXPECT_THAT(best_assignment(score_nn), ElementsAre(2, 0, 1));
}

TEST(Assignment, AnswersWhereAllAreEqual) {
  std::vector<int64_t> chosen = best_assignment(torch::ones({5, 5}));
  std::ranges::sort(chosen);
  EXPECT_THAT(chosen, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_ANY_THROW(best_assignment(torch::ones({2, 3})));
}

}  // namespace
}  // namespace shoal
