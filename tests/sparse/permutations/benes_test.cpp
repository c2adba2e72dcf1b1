#include "sparse/permutations/benes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using Index = std::vector<int64_t>;

Index identity(int64_t side) {
  Index index(static_cast<size_t>(side));
  std::iota(index.begin(), index.end(), 0);
  return index;
}

/// The orders that networks with these switches give, [number of them, s].
torch::Tensor orders_of(const std::vector<Index>& routed) {
  const std::vector<std::vector<bool>> first = benes_switches(routed[0]);
  std::vector<double> logits;
  for (const Index& index : routed) {
    for (const std::vector<bool>& stage : benes_switches(index)) {
      for (const bool is_on : stage) logits.push_back(is_on ? 9.0 : -9.0);
    }
  }
  const torch::Tensor logit_1GKh =
      torch::tensor(logits, torch::kFloat64)
          .view({1, std::ssize(routed), std::ssize(first), std::ssize(first[0])});
  return Benes(SwitchOptions()).index(logit_1GKh)[0];
}

torch::Tensor tensor_of(const std::vector<Index>& orders) {
  std::vector<torch::Tensor> rows;
  for (const Index& order : orders) rows.push_back(torch::tensor(order));
  return torch::stack(rows);
}

TEST(BenesSwitches, AreThoseFoundByHand) {
  // The first two are exchanged: all pass the outer stages, so they meet in the upper half.
  EXPECT_THAT(
      benes_switches({1, 0, 2, 3}),
      ElementsAre(ElementsAre(false, false), ElementsAre(true, false), ElementsAre(false, false)));
  // Reversed: the halves change places in the first stage, and each is reversed in the middle.
  EXPECT_THAT(
      benes_switches({3, 2, 1, 0}),
      ElementsAre(ElementsAre(true, true), ElementsAre(true, true), ElementsAre(false, false)));
  EXPECT_THAT(benes_switches({1, 0}), ElementsAre(ElementsAre(true)));
  EXPECT_THAT(benes_switches({0, 1}), ElementsAre(ElementsAre(false)));
}

TEST(BenesSwitches, GiveEveryOrderOfUpToEight) {
  for (const int64_t side : {2, 4, 8}) {
    std::vector<Index> all;
    Index index = identity(side);
    do {
      all.push_back(index);
    } while (std::ranges::next_permutation(index).found);
    EXPECT_TRUE(orders_of(all).equal(tensor_of(all))) << side;
  }
}

TEST(BenesSwitches, GiveOrdersOfMany) {
  for (const int64_t side : {16, 64, 256}) {
    std::vector<Index> some;
    for (int64_t seed = 0; seed < 50; ++seed) {
      const torch::Tensor order = testing::some_numbers({side}, seed).argsort();
      some.emplace_back(order.const_data_ptr<int64_t>(), order.const_data_ptr<int64_t>() + side);
    }
    EXPECT_TRUE(orders_of(some).equal(tensor_of(some))) << side;
  }
}

TEST(BenesSwitches, NeedAPowerOfTwo) {
  EXPECT_ANY_THROW(benes_switches({0}));
  EXPECT_ANY_THROW(benes_switches({0, 1, 2}));
}

TEST(Benes, ReachesFromEndToEnd) {
  // The first and the last stage of 8 members exchange those that are 4 apart, the middle one
  // neighbours.
  const auto order_with = [](int64_t stage, int64_t which) {
    const torch::Tensor logit = torch::full({1, 1, 5, 4}, -9.0);
    logit[0][0][stage][which] = 9.0;
    return Benes(SwitchOptions()).index(logit).flatten();
  };
  EXPECT_TRUE(order_with(0, 1).equal(torch::tensor({0, 5, 2, 3, 4, 1, 6, 7})));
  EXPECT_TRUE(order_with(1, 3).equal(torch::tensor({0, 1, 2, 3, 4, 7, 6, 5})));
  EXPECT_TRUE(order_with(2, 1).equal(torch::tensor({0, 1, 3, 2, 4, 5, 6, 7})));
  EXPECT_TRUE(order_with(3, 0).equal(torch::tensor({2, 1, 0, 3, 4, 5, 6, 7})));
  EXPECT_TRUE(order_with(4, 1).equal(torch::tensor({0, 5, 2, 3, 4, 1, 6, 7})));
}

}  // namespace
}  // namespace shoal
