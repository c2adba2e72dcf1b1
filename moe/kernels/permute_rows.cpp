#include "moe/kernels/permute_rows.h"

#include <torch/library.h>

#include "runtime/device/autograd_function.h"
#include "runtime/device/operator.h"
#include "runtime/device/real_types.h"

namespace shoal {
namespace {

torch::Tensor call_gather_sum(const torch::Tensor& rows, const MaybeTensor& weight,
                              const RowIndex& index) {
  static const Operator<torch::Tensor(const torch::Tensor&, const MaybeTensor&,
                                      const torch::Tensor&, const torch::Tensor&)>
      op("shoal::gather_sum_rows");
  return op(rows.contiguous(), weight, index.first_T1, index.row_A);
}

struct GatherRows : torch::autograd::Function<GatherRows> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x_TD,
                               const RowIndex& index) {
    ctx->save_for_backward({index.token_A, index.first_T1, index.row_A});
    return take_rows(x_TD, index.token_A);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    const auto saved = ctx->get_saved_variables();
    return {call_gather_sum(grads[0], std::nullopt, {saved[0], saved[1], saved[2]}),
            torch::Tensor()};
  }
};

struct SumRows : torch::autograd::Function<SumRows> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& rows_AD,
                               const RowIndex& index) {
    ctx->save_for_backward({index.token_A});
    return call_gather_sum(rows_AD, std::nullopt, index);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    return {take_rows(grads[0], ctx->get_saved_variables()[0]), torch::Tensor()};
  }
};

struct CombineRows : torch::autograd::Function<CombineRows> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& rows_AD,
                               const torch::Tensor& weight_A, const RowIndex& index) {
    const torch::Tensor rows = rows_AD.contiguous();
    // Rows of fewer bits are summed in float32, and so are their weights.
    const torch::Tensor weight = weight_A.to(wide_dtype(rows.scalar_type())).contiguous();
    ctx->saved_data["weight_dtype"] = weight_A.scalar_type();
    ctx->save_for_backward({rows, weight, index.token_A});
    return call_gather_sum(rows, weight, index);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    static const Operator<std::tuple<torch::Tensor, torch::Tensor>(
        const torch::Tensor&, const torch::Tensor&, const torch::Tensor&, const torch::Tensor&)>
        op("shoal::combine_rows_backward");
    const auto saved = ctx->get_saved_variables();
    auto [grad_rows, grad_weight] = op(grads[0].contiguous(), saved[0], saved[1], saved[2]);
    return {grad_rows, grad_weight.to(ctx->saved_data["weight_dtype"].toScalarType()),
            torch::Tensor()};
  }
};

struct PermuteRows : torch::autograd::Function<PermuteRows> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x_RD,
                               const torch::Tensor& order_R, const torch::Tensor& inverse_R) {
    ctx->save_for_backward({inverse_R});
    return take_rows(x_RD, order_R);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    return {take_rows(grads[0], ctx->get_saved_variables()[0]), torch::Tensor(), torch::Tensor()};
  }
};

void check_rows(const torch::Tensor& rows, int64_t num_rows, const char* what) {
  TORCH_CHECK(rows.dim() == 2 && rows.size(0) == num_rows, what, ": expected ", num_rows,
              " rows of one width, got ", rows.sizes());
}

}  // namespace

torch::Tensor take_rows(const torch::Tensor& rows, const torch::Tensor& index) {
  static const Operator<torch::Tensor(const torch::Tensor&, const torch::Tensor&)> op(
      "shoal::gather_rows");
  return op(rows.contiguous(), index);
}

RowIndex make_row_index(const torch::Tensor& token_A, int64_t num_tokens) {
  static const Operator<std::tuple<torch::Tensor, torch::Tensor>(const torch::Tensor&, int64_t)> op(
      "shoal::invert_rows");
  auto [first_T1, row_A] = op(token_A.contiguous(), num_tokens);
  return {token_A.contiguous(), first_T1, row_A};
}

torch::Tensor gather_rows(const torch::Tensor& x_TD, const RowIndex& index) {
  check_rows(x_TD, index.num_tokens(), "gather_rows");
  return GatherRows::apply(x_TD, index);
}

torch::Tensor combine_rows(const torch::Tensor& rows_AD, const torch::Tensor& weight_A,
                           const RowIndex& index) {
  check_rows(rows_AD, index.token_A.size(0), "combine_rows");
  TORCH_CHECK(weight_A.dim() == 1 && weight_A.size(0) == rows_AD.size(0), "combine_rows: weights ",
              weight_A.sizes(), " for rows ", rows_AD.sizes());
  return CombineRows::apply(rows_AD, weight_A, index);
}

torch::Tensor sum_rows(const torch::Tensor& rows_AD, const RowIndex& index) {
  check_rows(rows_AD, index.token_A.size(0), "sum_rows");
  return SumRows::apply(rows_AD, index);
}

torch::Tensor permute_rows(const torch::Tensor& x_RD, const torch::Tensor& order_R,
                           const torch::Tensor& inverse_R) {
  check_rows(x_RD, order_R.size(0), "permute_rows");
  return PermuteRows::apply(x_RD, order_R, inverse_R);
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def("invert_rows(Tensor token, int num_tokens) -> (Tensor, Tensor)");
  m.def("gather_rows(Tensor x, Tensor index) -> Tensor");
  m.def("gather_sum_rows(Tensor rows, Tensor? weight, Tensor first, Tensor row) -> Tensor");
  m.def(
      "combine_rows_backward(Tensor grad, Tensor rows, Tensor weight, Tensor token) -> "
      "(Tensor, Tensor)");
}

}  // namespace shoal
