#include "moe/exchange/packed_rows.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstring>

#include "tests/support/gradient_check.h"

// T tokens  D width  A rows sent  R rows received
namespace shoal {
namespace {

using testing::some_numbers;

bool has_equal_bits(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor x = a.contiguous(), y = b.contiguous();
  return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

/// Weights whose bits no arithmetic keeps: NaNs with a payload, -0, denormals.
torch::Tensor odd_weights(int64_t count, torch::Dtype dtype) {
  const bool is_double = dtype == torch::kFloat64;
  torch::Tensor bits = torch::arange(1, count + 1, is_double ? torch::kInt64 : torch::kInt32);
  for (int64_t i = 0; i < count; i += 3) bits[i] = -(i + 1);
  return bits.view(dtype);
}

TEST(PackedRows, WeightsFillRowsBehindThoseOfTheirRank) {
  const PackedType type{torch::kFloat32, torch::kFloat64, 3};
  // 12 bytes a row, 8 a weight: 3, 0 and 1 weights need 2, 0 and 1 rows.
  EXPECT_EQ(packed_counts({3, 0, 1}, {3, 0, 1}, type), (RowCounts{5, 0, 2}));
  const PackedLayout layout = packed_layout({3, 0, 1}, {3, 0, 1}, type, torch::kCPU);
  EXPECT_EQ(layout.num_rows, 7);
  EXPECT_TRUE(torch::equal(layout.row_R, torch::tensor({0, 1, 2, 5}, torch::kInt64)));
  EXPECT_FALSE(layout.held_B.defined());  // only the backward pass reads it
  const PackedLayout to_send = layout_to_send(layout, make_row_index(torch::arange(4), 4));
  EXPECT_TRUE(
      torch::equal(to_send.index.token_A, torch::tensor({0, 1, 2, -1, -1, 3, -1}, torch::kInt64)));
  EXPECT_EQ(type.piece(), torch::kInt32);
  EXPECT_TRUE(
      torch::equal(layout.piece_W, torch::tensor({9, 10, 11, 12, 13, 14, 18, 19}, torch::kInt64)));
}

TEST(PackedRows, KeepsEveryBitForwardAndBackward) {
  const torch::Tensor token_A = torch::tensor({2, 0, 1, 2, 3}, torch::kInt64);
  const torch::Tensor order_R = torch::tensor({4, 1, 0, 3, 2}, torch::kInt64);
  for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    for (const torch::Dtype weight_dtype : {torch::kFloat32, torch::kFloat64}) {
      for (const int64_t width : {1, 3, 8}) {  // pieces of 2, 4 and 8 bytes
        const torch::Tensor x = some_numbers({4, width}, 1).to(dtype).set_requires_grad(true);
        const torch::Tensor weight = odd_weights(5, weight_dtype).set_requires_grad(true);
        const RowCounts rows{2, 3};
        const PackedType type{dtype, weight_dtype, width};
        const PackedLayout layout = packed_layout(rows, rows, type, torch::kCPU);
        const torch::Tensor buffer =
            pack_rows(x, weight, layout_to_send(layout, make_row_index(token_A, 4)));
        for (const torch::Tensor& order : {torch::Tensor(), order_R}) {
          const auto [rows_RD, weight_R] =
              unpack_rows(buffer, dtype, packed_layout(rows, rows, type, torch::kCPU, order));
          const torch::Tensor place = order.defined() ? order : torch::arange(5);
          EXPECT_TRUE(has_equal_bits(rows_RD, x.index_select(0, token_A.index_select(0, place))));
          EXPECT_TRUE(has_equal_bits(weight_R, weight.index_select(0, place)));
          const torch::Tensor rows_grad = some_numbers({5, width}, 2).to(dtype);
          const torch::Tensor weight_grad = odd_weights(5, weight_dtype);
          const auto grads = torch::autograd::grad({rows_RD, weight_R}, {x, weight},
                                                   {rows_grad, weight_grad}, true);
          const torch::Tensor expected =
              torch::empty_like(weight_grad).index_copy_(0, place, weight_grad);
          EXPECT_TRUE(has_equal_bits(grads[1], expected));
          const torch::Tensor in_order =
              torch::empty_like(rows_grad).index_copy_(0, place, rows_grad);
          EXPECT_TRUE(has_equal_bits(grads[0], sum_rows(in_order, make_row_index(token_A, 4))));
        }
      }
    }
  }
}

TEST(PackedRows, MayHaveWeightsOfOtherCountsThanRows) {
  const torch::Tensor x = some_numbers({2, 2}, 1), weight = odd_weights(5, torch::kFloat64);
  const PackedLayout layout =
      packed_layout({0, 2}, {1, 4}, {torch::kFloat64, torch::kFloat64, 2}, torch::kCPU);
  const torch::Tensor buffer =
      pack_rows(x, weight, layout_to_send(layout, make_row_index(torch::arange(2), 2)));
  EXPECT_EQ(buffer.size(0), 1 + 2 + 2);
  const auto [rows, weights] = unpack_rows(buffer, torch::kFloat64, layout);
  EXPECT_TRUE(has_equal_bits(rows, x));
  EXPECT_TRUE(has_equal_bits(weights, weight));
}

TEST(PackedRows, RefusesRowsWithoutElementsOtherWeightsAndOtherLayouts) {
  EXPECT_THROW(packed_counts({1}, {1}, {torch::kFloat32, torch::kFloat32, 0}), c10::Error);
  const PackedLayout received =
      packed_layout({2}, {2}, {torch::kFloat32, torch::kFloat32, 4}, torch::kCPU);
  const PackedLayout layout = layout_to_send(received, make_row_index(torch::arange(2), 2));
  const torch::Tensor x = torch::zeros({2, 4});
  EXPECT_THROW(pack_rows(x, torch::zeros({2}, torch::kFloat64), layout), c10::Error);
  EXPECT_THROW(pack_rows(x, torch::zeros({2}), received), c10::Error);
}

}  // namespace
}  // namespace shoal
