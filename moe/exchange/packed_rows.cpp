#include "moe/exchange/packed_rows.h"

#include <numeric>
#include <utility>
#include <vector>

#include "runtime/device/autograd_function.h"
#include "runtime/device/device_copy.h"

// T tokens  D width  A rows this rank sends  R rows it receives  W combine weights
// B rows of a buffer
namespace shoal {
namespace {

using torch::Tensor;
using torch::autograd::Function;

/// Returns [num_rows] with held_A[i] at row_A[i], and -1 elsewhere.
Tensor placed(const Tensor& held_A, const Tensor& row_A, int64_t num_rows) {
  return torch::full({num_rows}, -1, row_A.options()).index_copy_(0, row_A, held_A);
}

void put_weights(const Tensor& buffer, const Tensor& weight_W, const PackedLayout& layout) {
  const torch::Dtype piece = layout.type.piece();
  buffer.view(piece).view({-1}).index_copy_(0, layout.piece_W, weight_W.contiguous().view(piece));
}

Tensor take_weights(const Tensor& buffer, const PackedLayout& layout) {
  return buffer.view(layout.type.piece())
      .view({-1})
      .index_select(0, layout.piece_W)
      .view(layout.type.weight);
}

/// A layout, and the dtype of the rows outside of the buffer.
struct Packing {
  PackedLayout layout;
  torch::Dtype dtype;
};

struct PackRows : Function<PackRows> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_TD, const Tensor& weight_W,
                        const Packing& packing) {
    save_value(ctx, packing);
    const PackedLayout& layout = packing.layout;
    const Tensor buffer = take_rows(x_TD, layout.index.token_A).to(layout.type.row);
    put_weights(buffer, weight_W, layout);
    return buffer;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_second_derivatives();
    const Packing& packing = saved_value<Packing>(ctx);
    const Tensor grad = grads[0].contiguous();
    Tensor x_grad, weight_grad;
    if (ctx->needs_input_grad(1)) weight_grad = take_weights(grad, packing.layout);
    if (ctx->needs_input_grad(0)) x_grad = sum_rows(grad.to(packing.dtype), packing.layout.index);
    return {x_grad, weight_grad, Tensor()};
  }
};

struct UnpackRows : Function<UnpackRows> {
  static variable_list forward(AutogradContext* ctx, const Tensor& buffer, const Packing& packing) {
    save_value(ctx, packing);
    const PackedLayout& layout = packing.layout;
    return {take_rows(buffer, layout.row_R).to(packing.dtype), take_weights(buffer, layout)};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_second_derivatives();
    const PackedLayout& layout = saved_value<Packing>(ctx).layout;
    const Tensor held_B = layout.held_B.defined()
                              ? layout.held_B
                              : placed(torch::arange(layout.row_R.size(0), layout.row_R.options()),
                                       layout.row_R, layout.num_rows);
    const Tensor buffer = take_rows(grads[0].to(layout.type.row), held_B);
    put_weights(buffer, grads[1].to(layout.type.weight), layout);
    return {buffer, Tensor()};
  }
};

}  // namespace

torch::Dtype PackedType::piece() const {
  switch (std::gcd(row_bytes(), weight_bytes())) {
    case 8:
      return torch::kInt64;
    case 4:
      return torch::kInt32;
    case 2:
      return torch::kInt16;
    default:
      return torch::kUInt8;
  }
}

RowCounts packed_counts(const RowCounts& rows_E, const RowCounts& weights_E,
                        const PackedType& type) {
  const int64_t row_bytes = type.row_bytes();
  TORCH_CHECK(row_bytes > 0, "exchange: rows have no elements");
  RowCounts packed_E;
  for (size_t rank = 0; rank < rows_E.size(); ++rank) {
    const int64_t weight_bytes = weights_E[rank] * type.weight_bytes();
    packed_E.push_back(rows_E[rank] + (weight_bytes + row_bytes - 1) / row_bytes);
  }
  return packed_E;
}

PackedLayout packed_layout(const RowCounts& rows_E, const RowCounts& weights_E,
                           const PackedType& type, const torch::Device& device,
                           const Tensor& order_R) {
  const RowCounts packed_E = packed_counts(rows_E, weights_E, type);
  const auto piece_bytes = static_cast<int64_t>(elementSize(type.piece()));
  std::vector<int64_t> first_row, first_piece, pieces;
  int64_t num_rows = 0;
  for (size_t rank = 0; rank < rows_E.size(); ++rank) {
    first_row.push_back(num_rows);
    first_piece.push_back((num_rows + rows_E[rank]) * (type.row_bytes() / piece_bytes));
    pieces.push_back(weights_E[rank] * (type.weight_bytes() / piece_bytes));
    num_rows += packed_E[rank];
  }
  const auto places = [&](const std::vector<int64_t>& first, const std::vector<int64_t>& count) {
    return indices_of_runs(send_to(first, device), send_to(count, device), sum(count));
  };
  Tensor row_R = places(first_row, rows_E), piece_W = places(first_piece, pieces);
  if (order_R.defined()) {
    row_R = row_R.index_select(0, order_R);
    piece_W = piece_W.view({-1, type.weight_bytes() / piece_bytes}).index_select(0, order_R);
  }
  return {type, piece_W.flatten(), num_rows, {}, row_R};
}

PackedLayout layout_to_send(PackedLayout layout, const RowIndex& index) {
  const Tensor row_A = std::exchange(layout.row_R, Tensor());
  layout.index = {placed(index.token_A, row_A, layout.num_rows), index.first_T1,
                  row_A.index_select(0, index.row_A)};
  return layout;
}

Tensor pack_rows(const Tensor& x_TD, const Tensor& weight_W, const PackedLayout& layout) {
  TORCH_CHECK(layout.index.first_T1.defined(), "pack_rows: the layout is of a received buffer");
  const int64_t num_tokens = layout.index.num_tokens();
  TORCH_CHECK(x_TD.dim() == 2 && x_TD.size(0) == num_tokens && x_TD.size(1) == layout.type.width &&
                  weight_W.scalar_type() == layout.type.weight,
              "pack_rows: tokens ", x_TD.sizes(), " and ", weight_W.scalar_type(),
              " weights, expected ", num_tokens, " tokens of width ", layout.type.width, " and ",
              layout.type.weight);
  return PackRows::apply(x_TD, weight_W, Packing{layout, x_TD.scalar_type()});
}

RowsWithWeights unpack_rows(const Tensor& buffer, torch::Dtype dtype, const PackedLayout& layout) {
  const variable_list unpacked = UnpackRows::apply(buffer, Packing{layout, dtype});
  return {unpacked[0], unpacked[1]};
}

Tensor indices_of_runs(const Tensor& first_V, const Tensor& rows_V, int64_t total) {
  const Tensor shift_V = first_V - (rows_V.cumsum(0) - rows_V);
  return torch::repeat_interleave(shift_V, rows_V, /*dim=*/0, /*output_size=*/total) +
         torch::arange(total, rows_V.options());
}

}  // namespace shoal
