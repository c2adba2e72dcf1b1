#include "models/kernels/transpose_add.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "runtime/device/operator.h"

namespace shoal {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using Add = torch::Tensor(const torch::Tensor&, const torch::Tensor&);
using Transpose = torch::Tensor(const torch::Tensor&);

struct TransposeAddFunction : torch::autograd::Function<TransposeAddFunction> {
  static torch::Tensor forward(AutogradContext*, const torch::Tensor& x, const torch::Tensor& y) {
    static const Operator<Add> op("shoal::transpose_add");
    return op(x, y);
  }
  static variable_list backward(AutogradContext*, variable_list grads) {
    refuse_second_derivatives();
    static const Operator<Transpose> op("shoal::transpose_images");
    const torch::Tensor grad = grads[0].contiguous();
    return {grad, op(grad)};
  }
};

}  // namespace

torch::Tensor transpose_add(const torch::Tensor& x_BSC, const torch::Tensor& y_BCS) {
  TORCH_CHECK(x_BSC.dim() == 3 && y_BCS.sizes() == x_BSC.transpose(1, 2).sizes(),
              "transpose_add expects [B, S, C] and [B, C, S], got ", x_BSC.sizes(), " and ",
              y_BCS.sizes());
  if (!x_BSC.is_cpu() || x_BSC.scalar_type() == torch::kBFloat16) {
    return x_BSC.contiguous() + y_BCS.transpose(1, 2);
  }
  return TransposeAddFunction::apply(x_BSC.contiguous(), y_BCS.contiguous());
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def("transpose_add(Tensor x, Tensor y) -> Tensor");
  m.def("transpose_images(Tensor x) -> Tensor");
}

}  // namespace shoal
