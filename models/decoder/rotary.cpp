#include "models/decoder/rotary.h"

#include <torch/library.h>

#include "runtime/device/autograd_function.h"
#include "runtime/device/operator.h"
#include "runtime/device/real_types.h"

// B sequences  N heads  S tokens  H head width
namespace shoal {
namespace {

torch::Tensor rotate_cpu(const torch::Tensor& x_BNSH, const torch::Tensor& cos,
                         const torch::Tensor& angle_sin, bool is_inverse) {
  const torch::Tensor sin = is_inverse ? angle_sin.neg() : angle_sin;
  const int64_t half = x_BNSH.size(3) / 2;
  const torch::Tensor x = x_BNSH.to(cos.scalar_type());
  const torch::Tensor first = x.narrow(3, 0, half), second = x.narrow(3, half, half);
  torch::Tensor y = torch::empty(x.sizes(), x.options());
  torch::Tensor y_first = y.narrow(3, 0, half), y_second = y.narrow(3, half, half);
  at::mul_out(y_first, first, cos).addcmul_(second, sin, -1);
  at::mul_out(y_second, second, cos).addcmul_(first, sin);
  return y.to(x_BNSH.scalar_type());
}

torch::Tensor turn(const torch::Tensor& x_BNSH, const torch::Tensor& cos, const torch::Tensor& sin,
                   bool is_inverse) {
  static const Operator<torch::Tensor(const torch::Tensor&, const torch::Tensor&,
                                      const torch::Tensor&, bool)>
      op("shoal::rotate");
  return op(x_BNSH, cos, sin, is_inverse);
}

struct RotateFunction : torch::autograd::Function<RotateFunction> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x_BNSH,
                               const torch::Tensor& cos, const torch::Tensor& sin) {
    ctx->save_for_backward({cos, sin});
    return turn(x_BNSH, cos, sin, /*is_inverse=*/false);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    const variable_list saved = ctx->get_saved_variables();
    return {turn(grads[0], saved[0], saved[1], /*is_inverse=*/true), {}, {}};
  }
};

}  // namespace

Rotation rotation_at(const torch::Tensor& position, int64_t head_width, double base,
                     torch::Dtype dtype) {
  TORCH_CHECK(head_width % 2 == 0, "rotary positions need an even head width, got ", head_width);
  const torch::Dtype angles = wide_dtype(dtype);
  const auto double_options = position.options().dtype(torch::kFloat64);
  const torch::Tensor power =
      torch::arange(head_width / 2, double_options) * 2.0 / static_cast<double>(head_width);
  const torch::Tensor frequency = torch::pow(base, power.neg()).to(angles);
  const torch::Tensor angle = position.to(angles).unsqueeze(-1) * frequency;
  return {angle.cos(), angle.sin()};
}

torch::Tensor rotate(const torch::Tensor& x_BNSH, const Rotation& rotation) {
  if (!rotation.cos.defined()) return x_BNSH;
  TORCH_CHECK(x_BNSH.dim() == 4 && rotation.cos.size(-1) * 2 == x_BNSH.size(3) &&
                  rotation.cos.size(-2) == x_BNSH.size(2) &&
                  (rotation.cos.dim() == 2 || rotation.cos.size(0) == x_BNSH.size(0)) &&
                  rotation.cos.scalar_type() == wide_dtype(x_BNSH.scalar_type()),
              "rotate: angles ", rotation.cos.sizes(), " of ", rotation.cos.scalar_type(),
              " do not fit heads ", x_BNSH.sizes(), " of ", x_BNSH.scalar_type());
  return RotateFunction::apply(x_BNSH, rotation.cos.contiguous(), rotation.sin.contiguous());
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def("rotate(Tensor x, Tensor cos, Tensor sin, bool inverse) -> Tensor");
}
TORCH_LIBRARY_IMPL(shoal, CPU, m) { m.impl("rotate", rotate_cpu); }

}  // namespace shoal
