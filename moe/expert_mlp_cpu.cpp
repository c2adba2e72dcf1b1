#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>

#include "runtime/bias_activation.h"

// R rows  D width in  H hidden width  O width out  u experts
namespace shoal {
namespace {

using torch::Tensor;
using MaybeTensor = std::optional<Tensor>;

/// Calls `body(expert, first row, rows)` for each expert, in order.
template <class Body>
void for_each_expert(c10::IntArrayRef rows_u, const Body& body) {
  int64_t first = 0;
  for (size_t expert = 0; expert < rows_u.size(); ++expert) {
    body(static_cast<int64_t>(expert), first, rows_u[expert]);
    first += rows_u[expert];
  }
}

// The pre-activations are written where the activation's slope will stand.
std::tuple<Tensor, Tensor, Tensor> forward_cpu(const Tensor& rows, c10::IntArrayRef rows_u,
                                               const Tensor& fc1_weight,
                                               const MaybeTensor& fc1_bias,
                                               const Tensor& fc2_weight,
                                               const MaybeTensor& fc2_bias, int64_t activation,
                                               bool keep) {
  const int64_t num_rows = rows.size(0), hidden_width = fc1_weight.size(2);
  const int64_t most = rows_u.empty() ? 0 : *std::max_element(rows_u.begin(), rows_u.end());
  Tensor y = torch::empty({num_rows, fc2_weight.size(2)}, rows.options());
  Tensor hidden = torch::empty({keep ? num_rows : most, hidden_width}, rows.options());
  Tensor slope = torch::empty_like(hidden);
  for_each_expert(rows_u, [&](int64_t expert, int64_t first, int64_t count) {
    if (count == 0) return;
    const int64_t place = keep ? first : 0;
    Tensor slope_e = slope.narrow(0, place, count), hidden_e = hidden.narrow(0, place, count);
    Tensor y_e = y.narrow(0, first, count);
    at::mm_out(slope_e, rows.narrow(0, first, count), fc1_weight.select(0, expert));
    bias_activation_out(hidden_e, keep ? slope_e : Tensor(), slope_e,
                        {fc1_bias ? fc1_bias->select(0, expert) : Tensor(),
                         static_cast<Activation>(activation), 1});
    if (fc2_bias) {
      at::addmm_out(y_e, fc2_bias->select(0, expert), hidden_e, fc2_weight.select(0, expert));
    } else {
      at::mm_out(y_e, hidden_e, fc2_weight.select(0, expert));
    }
  });
  return {y, hidden, slope};
}

/// Gradients of one stack, each written once.
struct StackGrads {
  Tensor fc1_weight, fc1_bias, fc2_weight, fc2_bias;

  void zero(int64_t expert) {
    for (const Tensor& grad : {fc1_weight, fc1_bias, fc2_weight, fc2_bias}) {
      if (grad.defined()) grad.select(0, expert).zero_();
    }
  }
};

std::vector<Tensor> backward_cpu(const Tensor& grad, const Tensor& rows, const Tensor& hidden,
                                 const Tensor& slope, const Tensor& fc1_weight,
                                 const Tensor& fc2_weight, c10::IntArrayRef rows_u, bool has_bias,
                                 bool needs_rows_grad) {
  const int64_t hidden_width = fc1_weight.size(2);
  StackGrads grads{torch::empty_like(fc1_weight), Tensor(), torch::empty_like(fc2_weight),
                   Tensor()};
  if (has_bias) {
    grads.fc1_bias = torch::zeros({fc1_weight.size(0), hidden_width}, rows.options());
    grads.fc2_bias = torch::empty({fc2_weight.size(0), fc2_weight.size(2)}, rows.options());
  }
  Tensor rows_grad = needs_rows_grad ? torch::empty_like(rows) : Tensor();
  const int64_t most = rows_u.empty() ? 0 : *std::max_element(rows_u.begin(), rows_u.end());
  Tensor scratch = torch::empty({most, hidden_width}, rows.options());
  for_each_expert(rows_u, [&](int64_t expert, int64_t first, int64_t count) {
    if (count == 0) return grads.zero(expert);
    const Tensor grad_e = grad.narrow(0, first, count);
    Tensor hidden_grad = scratch.narrow(0, 0, count);
    Tensor fc1_grad = grads.fc1_weight.select(0, expert);
    Tensor fc2_grad = grads.fc2_weight.select(0, expert);
    at::mm_out(fc2_grad, hidden.narrow(0, first, count).t(), grad_e);
    at::mm_out(hidden_grad, grad_e, fc2_weight.select(0, expert).t());
    Tensor fc1_bias_grad;
    if (has_bias) {
      Tensor fc2_bias_grad = grads.fc2_bias.select(0, expert);
      at::sum_out(fc2_bias_grad, grad_e, 0);
      fc1_bias_grad = grads.fc1_bias.select(0, expert);
    }
    bias_activation_backward(hidden_grad, slope.narrow(0, first, count), fc1_bias_grad, 1);
    at::mm_out(fc1_grad, rows.narrow(0, first, count).t(), hidden_grad);
    if (!needs_rows_grad) return;
    Tensor rows_grad_e = rows_grad.narrow(0, first, count);
    at::mm_out(rows_grad_e, hidden_grad, fc1_weight.select(0, expert).t());
  });
  return {rows_grad, grads.fc1_weight, grads.fc1_bias, grads.fc2_weight, grads.fc2_bias};
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("expert_mlp_forward", forward_cpu);
  m.impl("expert_mlp_backward", backward_cpu);
}

}  // namespace shoal
