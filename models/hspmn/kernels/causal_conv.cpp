#include "models/hspmn/kernels/causal_conv.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <cmath>

#include "models/hspmn/kernels/causal_conv_rows.h"
#include "models/kernels/partial_sums.h"
#include "runtime/device/autograd_function.h"
#include "runtime/device/real_types.h"

// B sequences  S tokens  C channels
namespace shoal {
namespace {

/// Number of tokens per piece of work.
constexpr int64_t kPartTokens = 64;

/// True if the loops of causal_conv_rows.h apply: on CPUs.
bool has_loops(const torch::Tensor& x) { return x.device().is_cpu(); }

/// Calls work(sequence, first token, last token + 1) for pieces of all sequences in parallel.
template <class Work>
void for_parts(int64_t sequences, int64_t tokens, const Work& work) {
  const int64_t parts = (tokens + kPartTokens - 1) / kPartTokens;
  at::parallel_for(0, sequences * parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t begin = i % parts * kPartTokens;
      work(i / parts, begin, std::min(begin + kPartTokens, tokens));
    }
  });
}

/// x with the two tokens before it: [B, S + 2, C].
torch::Tensor with_before(const torch::Tensor& x, const torch::Tensor& before) {
  const torch::Tensor first = before.defined()
                                  ? before.to(x.scalar_type())
                                  : torch::zeros({x.size(0), 2, x.size(2)}, x.options());
  return at::cat({first, x}, /*dim=*/1);
}

torch::Tensor forward_loops(const torch::Tensor& x, const torch::Tensor& weight) {
  const int64_t S = x.size(1), C = x.size(2);
  torch::Tensor y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "causal_conv", [&] {
    const scalar_t* from = x.const_data_ptr<scalar_t>();
    const scalar_t* taps = weight.const_data_ptr<scalar_t>();
    scalar_t* to = y.mutable_data_ptr<scalar_t>();
    for_parts(x.size(0), S, [&](int64_t b, int64_t first, int64_t last) {
      convolve_rows<scalar_t>({from + b * S * C, taps, to + b * S * C, S, C}, first, last);
    });
  });
  return y;
}

variable_list backward_loops(const torch::Tensor& grad, const torch::Tensor& x,
                             const torch::Tensor& weight) {
  const int64_t S = x.size(1), C = x.size(2);
  torch::Tensor dx = torch::empty_like(x);
  PartialSums sums({weight.sizes()}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "causal_conv", [&] {
    const scalar_t* grads = grad.const_data_ptr<scalar_t>();
    const scalar_t* from = x.const_data_ptr<scalar_t>();
    const scalar_t* taps = weight.const_data_ptr<scalar_t>();
    scalar_t* to = dx.mutable_data_ptr<scalar_t>();
    for_parts(x.size(0), S, [&](int64_t b, int64_t first, int64_t last) {
      const int64_t begin = b * S * C;
      convolve_rows_backward<scalar_t>({grads + begin, taps, to + begin, S, C}, first, last);
      add_tap_gradients<scalar_t>({grads + begin, from + begin, sums.own<scalar_t>(0), S, C}, first,
                                  last);
    });
  });
  return {dx, sums.totals()[0]};
}

/// Convolution by LibTorch operators, for GPUs: y = sum over taps of a shifted x.
torch::Tensor convolve(const torch::Tensor& padded, const torch::Tensor& weight) {
  const int64_t S = padded.size(1) - 2;
  return padded.narrow(1, 0, S) * weight[0] + padded.narrow(1, 1, S) * weight[1] +
         padded.narrow(1, 2, S) * weight[2];
}

struct CausalConvFunction : torch::autograd::Function<CausalConvFunction> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& weight) {
    ctx->save_for_backward({x, weight});
    return forward_loops(x, weight);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    const variable_list saved = ctx->get_saved_variables();
    return backward_loops(grads[0].contiguous(), saved[0], saved[1]);
  }
};

}  // namespace

torch::Tensor causal_conv(const torch::Tensor& x_BSC, const torch::Tensor& weight_3C,
                          const torch::Tensor& before_B2C) {
  TORCH_CHECK(x_BSC.dim() == 3 && weight_3C.dim() == 2 && weight_3C.size(0) == kConvTaps &&
                  weight_3C.size(1) == x_BSC.size(2),
              "causal_conv: x is ", x_BSC.sizes(), ", weight is ", weight_3C.sizes(),
              ", expected [B, S, C] and [3, C]");
  const torch::Tensor x = at_least_float32(x_BSC);
  const torch::Tensor weight = weight_3C.to(x.scalar_type()).contiguous();
  const int64_t S = x.size(1);
  torch::Tensor y;
  if (before_B2C.defined()) {
    const torch::Tensor padded = with_before(x, before_B2C);
    y = has_loops(x) ? CausalConvFunction::apply(padded, weight).narrow(1, 2, S)
                     : convolve(padded, weight);
  } else {
    y = has_loops(x) ? CausalConvFunction::apply(x.contiguous(), weight)
                     : convolve(with_before(x, {}), weight);
  }
  return y.to(x_BSC.scalar_type());
}

CausalConvImpl::CausalConvImpl(int64_t channels, const torch::TensorOptions& options) {
  weight = add_parameter("weight", {kConvTaps, channels}, options,
                         Init::uniform(1.0 / std::sqrt(static_cast<double>(kConvTaps))));
}

}  // namespace shoal
