#include "moe/kernels/row_softmax.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "runtime/device/operator.h"

namespace shoal {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RowSoftmax : torch::autograd::Function<RowSoftmax> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& logits_TU) {
    static const Operator<torch::Tensor(const torch::Tensor&)> op("shoal::row_softmax");
    torch::Tensor gate_TU = op(logits_TU.contiguous());
    ctx->save_for_backward({gate_TU});
    return gate_TU;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    static const Operator<torch::Tensor(const torch::Tensor&, const torch::Tensor&)> op(
        "shoal::row_softmax_backward");
    return {op(grads[0].contiguous(), ctx->get_saved_variables()[0])};
  }
};

}  // namespace

torch::Tensor row_softmax(const torch::Tensor& logits_TU) {
  TORCH_CHECK(logits_TU.dim() == 2 && logits_TU.size(1) > 0, "row_softmax: rows of ",
              logits_TU.sizes());
  return RowSoftmax::apply(logits_TU);
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def("row_softmax(Tensor logits) -> Tensor");
  m.def("row_softmax_backward(Tensor grad, Tensor gate) -> Tensor");
}

}  // namespace shoal
