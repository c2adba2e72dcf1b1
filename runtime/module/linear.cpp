#include "runtime/module/linear.h"

#include <ATen/ops/linear.h>

namespace shoal {

Init bias_init() { return Init::normal(1e-6); }

LinearImpl::LinearImpl(int64_t in, int64_t out, const torch::TensorOptions& options)
    : LinearImpl(in, out, options, Init::xavier_uniform(in, out), shoal::bias_init()) {}

LinearImpl::LinearImpl(int64_t in, int64_t out, const torch::TensorOptions& options,
                       const Init& weight_init, const Init& bias_init) {
  weight = add_parameter("weight", {out, in}, options, weight_init);
  bias = add_parameter("bias", {out}, options, bias_init);
}

torch::Tensor LinearImpl::forward(const torch::Tensor& x) const {
  return at::linear(x, weight.to(x.scalar_type()), bias.to(x.scalar_type()));
}

}  // namespace shoal
