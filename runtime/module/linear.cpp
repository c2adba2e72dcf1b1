#include "runtime/module/linear.h"

namespace shoal {

Init bias_init() { return Init::normal(1e-6); }

MlpInits xavier_inits(int64_t width, int64_t hidden) {
  const Init weight = Init::xavier_uniform(width, hidden);
  return {weight, weight, bias_init()};
}

LinearImpl::LinearImpl(int64_t in, int64_t out, const torch::TensorOptions& options)
    : LinearImpl(in, out, options, Init::xavier_uniform(in, out), shoal::bias_init()) {}

LinearImpl::LinearImpl(int64_t in, int64_t out, const torch::TensorOptions& options,
                       const Init& weight_init, const std::optional<Init>& bias_init) {
  weight = add_parameter("weight", {out, in}, options, weight_init);
  if (bias_init) bias = add_parameter("bias", {out}, options, *bias_init);
}

torch::Tensor LinearImpl::forward(const torch::Tensor& x) const { return output_of(x); }

}  // namespace shoal
