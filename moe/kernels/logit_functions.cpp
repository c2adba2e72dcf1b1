#include "moe/kernels/logit_functions.h"

#include <torch/library.h>

#include "moe/kernels/logit_math.h"
#include "runtime/device/autograd_function.h"
#include "runtime/device/operator.h"

// R rows  C columns
namespace shoal {
namespace {

using FunctionOfLogits = torch::Tensor(const torch::Tensor&);

torch::Tensor sigmoid_of(const torch::Tensor& logits) {
  static const Operator<FunctionOfLogits> op("shoal::logit_sigmoid");
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
    static const Operator<FunctionOfLogits> op("shoal::logit_softplus");
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

struct RowSoftmax : torch::autograd::Function<RowSoftmax> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& logits_RC) {
    static const Operator<FunctionOfLogits> op("shoal::row_softmax");
    torch::Tensor gate_RC = op(logits_RC.contiguous());
    ctx->save_for_backward({gate_RC});
    return gate_RC;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    static const Operator<torch::Tensor(const torch::Tensor&, const torch::Tensor&)> op(
        "shoal::row_softmax_backward");
    return {op(grads[0].contiguous(), ctx->get_saved_variables()[0])};
  }
};

void check_matrix(const torch::Tensor& x_RC, const char* what) {
  TORCH_CHECK(x_RC.dim() == 2 && x_RC.size(1) > 0, what, ": rows of ", x_RC.sizes());
}

}  // namespace

torch::Tensor logit_sigmoid(const torch::Tensor& logits) { return LogitSigmoid::apply(logits); }

torch::Tensor logit_softplus(const torch::Tensor& logits) { return LogitSoftplus::apply(logits); }

torch::Tensor row_logsumexp(const torch::Tensor& x_RC) {
  static const Operator<FunctionOfLogits> op("shoal::row_logsumexp");
  check_matrix(x_RC, "row_logsumexp");
  return op(x_RC.contiguous());
}

torch::Tensor row_softmax(const torch::Tensor& logits_RC) {
  check_matrix(logits_RC, "row_softmax");
  return RowSoftmax::apply(logits_RC);
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def("logit_sigmoid(Tensor logits) -> Tensor");
  m.def("logit_softplus(Tensor logits) -> Tensor");
  m.def("row_logsumexp(Tensor x) -> Tensor");
  m.def("row_softmax(Tensor logits) -> Tensor");
  m.def("row_softmax_backward(Tensor grad, Tensor gate) -> Tensor");
}

}  // namespace shoal
