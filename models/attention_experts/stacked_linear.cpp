#include "models/attention_experts/stacked_linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include <numeric>

#include "runtime/device/autograd_function.h"

// D inputs  O outputs  R rows of all units  u units
namespace shoal {
namespace {

/// body(unit, its first row, its rows).
template <class Body>
void for_each_unit(const std::vector<int64_t>& rows_u, const Body& body) {
  int64_t first = 0;
  for (size_t u = 0; u < rows_u.size(); ++u) {
    body(static_cast<int64_t>(u), first, rows_u[u]);
    first += rows_u[u];
  }
}

struct StackedLinear : torch::autograd::Function<StackedLinear> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x_RD,
                               const torch::Tensor& weight_uDO, const torch::Tensor& bias_uO,
                               const std::vector<int64_t>& rows_u) {
    ctx->save_for_backward({x_RD, weight_uDO});
    ctx->saved_data["rows_u"] = rows_u;
    torch::Tensor y_RO = at::empty({x_RD.size(0), weight_uDO.size(2)}, x_RD.options());
    for_each_unit(rows_u, [&](int64_t u, int64_t first, int64_t rows) {
      torch::Tensor y = y_RO.narrow(0, first, rows);
      at::addmm_out(y, bias_uO[u], x_RD.narrow(0, first, rows), weight_uDO[u]);
    });
    return y_RO;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_second_derivatives();
    const variable_list saved = ctx->get_saved_variables();
    const torch::Tensor &x_RD = saved[0], &weight_uDO = saved[1];
    const torch::Tensor grad_RO = grads[0].contiguous();
    torch::Tensor dx_RD, dweight_uDO, dbias_uO;
    if (ctx->needs_input_grad(0)) dx_RD = at::empty_like(x_RD);
    if (ctx->needs_input_grad(1)) dweight_uDO = at::empty_like(weight_uDO);
    if (ctx->needs_input_grad(2)) {
      dbias_uO = at::empty({weight_uDO.size(0), weight_uDO.size(2)}, weight_uDO.options());
    }
    for_each_unit(ctx->saved_data["rows_u"].toIntVector(),
                  [&](int64_t u, int64_t first, int64_t rows) {
                    const torch::Tensor grad = grad_RO.narrow(0, first, rows);
                    if (dx_RD.defined()) {
                      torch::Tensor dx = dx_RD.narrow(0, first, rows);
                      at::mm_out(dx, grad, weight_uDO[u].t());
                    }
                    if (dweight_uDO.defined()) {
                      torch::Tensor dweight = dweight_uDO[u];
                      at::mm_out(dweight, x_RD.narrow(0, first, rows).t(), grad);
                    }
                    if (dbias_uO.defined()) {
                      torch::Tensor dbias = dbias_uO[u];
                      at::sum_out(dbias, grad, 0);
                    }
                  });
    return {dx_RD, dweight_uDO, dbias_uO, torch::Tensor()};
  }
};

}  // namespace

torch::Tensor stacked_linear(const torch::Tensor& x_RD, const std::vector<int64_t>& rows_u,
                             const torch::Tensor& weight_uDO, const torch::Tensor& bias_uO) {
  const int64_t rows = std::accumulate(rows_u.begin(), rows_u.end(), int64_t{0});
  TORCH_CHECK(x_RD.dim() == 2 && weight_uDO.dim() == 3 && x_RD.size(0) == rows &&
                  weight_uDO.size(0) == std::ssize(rows_u) && weight_uDO.size(1) == x_RD.size(1) &&
                  bias_uO.sizes() == at::IntArrayRef({weight_uDO.size(0), weight_uDO.size(2)}),
              "stacked_linear: ", rows_u.size(), " units with ", rows, " rows, but x is ",
              x_RD.sizes(), ", weight ", weight_uDO.sizes(), ", bias ", bias_uO.sizes());
  return StackedLinear::apply(x_RD, weight_uDO, bias_uO, rows_u);
}

}  // namespace shoal
