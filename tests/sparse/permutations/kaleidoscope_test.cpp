#include "sparse/permutations/kaleidoscope.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

/// The order with these switches on, [levels, 3] of them.
torch::Tensor order_of(const torch::Tensor& is_on) {
  const torch::Tensor logit = (is_on.to(torch::kFloat64) * 2.0 - 1.0) * 9.0;
  return Kaleidoscope(SwitchOptions()).index(logit.unsqueeze(0).unsqueeze(0)).flatten();
}

torch::Tensor order_of(const std::vector<int64_t>& is_on) {
  return order_of(torch::tensor(is_on).view({-1, 3}));
}

TEST(Kaleidoscope, HasEachOfItsParts) {
  EXPECT_TRUE(order_of({1, 0, 0, 0, 0, 0}).equal(torch::tensor({0, 2, 4, 6, 1, 3, 5, 7})));
  EXPECT_TRUE(order_of({0, 1, 0, 0, 0, 0}).equal(torch::tensor({3, 2, 1, 0, 4, 5, 6, 7})));
  EXPECT_TRUE(order_of({0, 0, 1, 0, 0, 0}).equal(torch::tensor({0, 1, 2, 3, 7, 6, 5, 4})));
  EXPECT_TRUE(order_of({0, 0, 0, 1, 0, 0}).equal(torch::tensor({0, 2, 1, 3, 4, 6, 5, 7})));
  EXPECT_TRUE(order_of({0, 0, 0, 0, 1, 0}).equal(torch::tensor({1, 0, 2, 3, 5, 4, 6, 7})));
  EXPECT_TRUE(order_of({0, 0, 0, 0, 0, 1}).equal(torch::tensor({0, 1, 3, 2, 4, 5, 7, 6})));
  // Evens first, then the evens among them reversed.
  EXPECT_TRUE(order_of({1, 1, 0, 0, 0, 0}).equal(torch::tensor({6, 4, 2, 0, 1, 3, 5, 7})));
}

TEST(Kaleidoscope, HasTheIdentityAndBitReversal) {
  for (const int64_t num_bits : {2, 3, 6}) {
    const int64_t side = int64_t{1} << num_bits;
    torch::Tensor is_on = torch::zeros({num_bits - 1, 3});
    EXPECT_TRUE(order_of(is_on).equal(torch::arange(side)));
    is_on.select(1, 0).fill_(1);
    const torch::Tensor reversed = torch::arange(side);
    for (int64_t i = 0; i < side; ++i) {
      int64_t bits = 0;
      for (int64_t bit = 0; bit < num_bits; ++bit) bits |= ((i >> bit) & 1) << (num_bits - 1 - bit);
      reversed[i] = bits;
    }
    EXPECT_TRUE(order_of(is_on).equal(reversed)) << side;
  }
}

TEST(Kaleidoscope, HasFewOrdersOfMany) {
  std::set<std::vector<int64_t>> orders;
  for (int64_t bits = 0; bits < 64; ++bits) {
    std::vector<int64_t> is_on;
    for (int64_t bit = 0; bit < 6; ++bit) is_on.push_back((bits >> bit) & 1);
    const torch::Tensor order = order_of(is_on);
    orders.emplace(order.const_data_ptr<int64_t>(), order.const_data_ptr<int64_t>() + 8);
    EXPECT_TRUE(std::get<0>(order.sort()).equal(torch::arange(8)));
  }
  EXPECT_EQ(orders.size(), 64u) << "of 40,320";
}

}  // namespace
}  // namespace shoal
