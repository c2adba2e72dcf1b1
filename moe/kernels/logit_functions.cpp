#include "moe/kernels/logit_functions.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "moe/kernels/logit_math.h"
#include "runtime/device/operator.h"

namespace shoal {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Elementwise = torch::Tensor(const torch::Tensor&);

torch::Tensor sigmoid_of(const torch::Tensor& logits) {
  static const Operator<Elementwise> op("shoal::logit_sigmoid");
  return op(logits);
}

struct LogitSigmoid : torch::autograd::Function<LogitSigmoid> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& logits) {
    const torch::Tensor score = sigmoid_of(logits.contiguous());
    ctx->save_for_backward({score});
    return score;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    const torch::Tensor score = ctx->get_saved_variables()[0];
    return {(1 - score).mul_(score).mul_(grads[0])};
  }
};

struct LogitSoftplus : torch::autograd::Function<LogitSoftplus> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& logits) {
    static const Operator<Elementwise> op("shoal::logit_softplus");
    const torch::Tensor input = logits.contiguous();
    ctx->save_for_backward({input});
    return op(input);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    const torch::Tensor logits = ctx->get_saved_variables()[0];
    const torch::Tensor is_linear = logits > logit_math::kLinearSoftplus;
    return {sigmoid_of(logits).masked_fill_(is_linear, 1).mul_(grads[0])};
  }
};

}  // namespace

torch::Tensor logit_sigmoid(const torch::Tensor& logits) { return LogitSigmoid::apply(logits); }

torch::Tensor logit_softplus(const torch::Tensor& logits) { return LogitSoftplus::apply(logits); }

torch::Tensor row_logsumexp(const torch::Tensor& x_RC) {
  static const Operator<Elementwise> op("shoal::row_logsumexp");
  TORCH_CHECK(x_RC.dim() == 2 && x_RC.size(1) > 0, "row_logsumexp: rows of ", x_RC.sizes());
  return op(x_RC.contiguous());
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def("logit_sigmoid(Tensor logits) -> Tensor");
  m.def("logit_softplus(Tensor logits) -> Tensor");
  m.def("row_logsumexp(Tensor x) -> Tensor");
}

}  // namespace shoal
