#include "moe/exchange/packed_rows.h"

#include <numeric>
#include <vector>

#include "moe/exchange/dispatch_plan.h"
#include "runtime/device/autograd_function.h"
#include "runtime/device/device_copy.h"
#include "runtime/device/operator.h"

// T tokens  D width  A rows this rank sends  R rows it receives  W combine weights
namespace shoal {
namespace {

using torch::Tensor;
using torch::autograd::Function;

int64_t bytes_of(torch::Dtype dtype) { return static_cast<int64_t>(elementSize(dtype)); }

torch::Dtype integer_of_bytes(int64_t bytes) {
  switch (bytes) {
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

/// Returns a tensor whose row i is rows[index[i]], zero where index[i] is -1.
Tensor take_rows(const Tensor& rows, const Tensor& index) {
  static const Operator<Tensor(const Tensor&, const Tensor&)> op("shoal::gather_rows");
  return op(rows.contiguous(), index);
}

/// Inverts row_A: for each row of the buffer the row it holds, -1 for rows of weights.
Tensor rows_in_buffer(const Tensor& row_A, const PackedLayout& layout) {
  Tensor held = torch::full({layout.num_rows}, -1, row_A.options());
  return held.index_copy_(0, row_A, torch::arange(row_A.size(0), row_A.options()));
}

void put_weights(const Tensor& buffer, const Tensor& weight_W, const PackedLayout& layout) {
  buffer.view(layout.piece)
      .view({-1})
      .index_copy_(0, layout.piece_W, weight_W.contiguous().view(layout.piece));
}

Tensor take_weights(const Tensor& buffer, const PackedLayout& layout) {
  return buffer.view(layout.piece)
      .view({-1})
      .index_select(0, layout.piece_W)
      .view(layout.type.weight);
}

/// The origin of the rows of a PackRows node, and their types.
struct Source {
  RowIndex index;  ///< into the buffer, whose rows of weights are padding
  PackedLayout layout;
  torch::Dtype dtype;  ///< of the tokens
};

struct PackRows : Function<PackRows> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_TD, const Tensor& weight_W,
                        const Source& source) {
    save_value(ctx, source);
    const Tensor buffer = take_rows(x_TD, source.index.token_A).to(source.layout.type.row);
    put_weights(buffer, weight_W, source.layout);
    return buffer;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_second_derivatives();
    const Source& source = saved_value<Source>(ctx);
    const Tensor grad = grads[0].contiguous();
    Tensor x_grad, weight_grad;
    if (ctx->needs_input_grad(1)) weight_grad = take_weights(grad, source.layout);
    if (ctx->needs_input_grad(0)) x_grad = sum_rows(grad.to(source.dtype), source.index);
    return {x_grad, weight_grad, Tensor()};
  }
};

/// The rows that an UnpackRows node takes out of its buffer.
struct Taken {
  Tensor row_R;    ///< row of the buffer of each row
  Tensor order_R;  ///< undefined: none
  PackedLayout layout;
  torch::Dtype dtype;  ///< of the rows taken
};

struct UnpackRows : Function<UnpackRows> {
  static variable_list forward(AutogradContext* ctx, const Tensor& buffer, const Taken& taken) {
    save_value(ctx, taken);
    Tensor weight_W = take_weights(buffer, taken.layout);
    if (taken.order_R.defined()) weight_W = weight_W.index_select(0, taken.order_R);
    return {take_rows(buffer, taken.row_R).to(taken.dtype), weight_W};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_second_derivatives();
    const Taken& taken = saved_value<Taken>(ctx);
    const PackedLayout& layout = taken.layout;
    const Tensor buffer =
        take_rows(grads[0].to(layout.type.row), rows_in_buffer(taken.row_R, layout));
    Tensor weight_grad = grads[1].to(layout.type.weight);
    if (taken.order_R.defined()) {
      weight_grad = torch::empty_like(weight_grad).index_copy_(0, taken.order_R, weight_grad);
    }
    put_weights(buffer, weight_grad, layout);
    return {buffer, Tensor()};
  }
};

}  // namespace

RowCounts packed_counts(const RowCounts& rows_E, const RowCounts& weights_E,
                        const PackedType& type) {
  const int64_t row_bytes = type.width * bytes_of(type.row);
  TORCH_CHECK(row_bytes > 0, "exchange: rows have no elements");
  RowCounts packed_E;
  for (size_t rank = 0; rank < rows_E.size(); ++rank) {
    const int64_t weight_bytes = weights_E[rank] * bytes_of(type.weight);
    packed_E.push_back(rows_E[rank] + (weight_bytes + row_bytes - 1) / row_bytes);
  }
  return packed_E;
}

PackedLayout packed_layout(const RowCounts& rows_E, const RowCounts& weights_E,
                           const PackedType& type, const torch::Device& device) {
  const RowCounts packed_E = packed_counts(rows_E, weights_E, type);
  const int64_t row_bytes = type.width * bytes_of(type.row);
  const int64_t piece_bytes = std::gcd(row_bytes, bytes_of(type.weight));
  std::vector<int64_t> first_row, first_piece, pieces;
  int64_t num_rows = 0;
  for (size_t rank = 0; rank < rows_E.size(); ++rank) {
    first_row.push_back(num_rows);
    first_piece.push_back((num_rows + rows_E[rank]) * (row_bytes / piece_bytes));
    pieces.push_back(weights_E[rank] * (bytes_of(type.weight) / piece_bytes));
    num_rows += packed_E[rank];
  }
  const auto places = [&](const std::vector<int64_t>& first, const std::vector<int64_t>& count) {
    return indices_of_runs(send_to(first, device), send_to(count, device), sum(count));
  };
  return {type, integer_of_bytes(piece_bytes), num_rows, places(first_row, rows_E),
          places(first_piece, pieces)};
}

Tensor pack_rows(const Tensor& x_TD, const Tensor& weight_W, const RowIndex& index,
                 const PackedLayout& layout) {
  TORCH_CHECK(x_TD.dim() == 2 && x_TD.size(0) == index.num_tokens() &&
                  x_TD.size(1) == layout.type.width && weight_W.scalar_type() == layout.type.weight,
              "pack_rows: tokens ", x_TD.sizes(), " and ", weight_W.scalar_type(),
              " weights, expected ", index.num_tokens(), " tokens of width ", layout.type.width,
              " and ", layout.type.weight);
  Tensor token = torch::full({layout.num_rows}, -1, index.token_A.options());
  token.index_copy_(0, layout.row_A, index.token_A);
  const RowIndex in_buffer{token, index.first_T1, layout.row_A.index_select(0, index.row_A)};
  return PackRows::apply(x_TD, weight_W, Source{in_buffer, layout, x_TD.scalar_type()});
}

RowsWithWeights unpack_rows(const Tensor& buffer, const Tensor& order_R, torch::Dtype dtype,
                            const PackedLayout& layout) {
  const Tensor row_R = order_R.defined() ? layout.row_A.index_select(0, order_R) : layout.row_A;
  const variable_list unpacked = UnpackRows::apply(buffer, Taken{row_R, order_R, layout, dtype});
  return {unpacked[0], unpacked[1]};
}

}  // namespace shoal
