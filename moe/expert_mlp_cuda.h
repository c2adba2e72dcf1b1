#pragma once

#include <cstdint>

#include "runtime/activation.h"

struct CUstream_st;

// R rows  H width  u experts

/// Kernels of moe/expert_mlp.h. Pointers are to GPU memory; each call is queued on the stream. Rows
/// are sorted by expert; those of expert e end before end_u[e]. Rows of none are not touched.
namespace shoal::expert_mlp_cuda {

struct Shape {
  const int32_t* end_u;
  int num_experts;
  int64_t num_rows, width;
};

/// rows += bias of the expert.
template <class Real>
void launch_add_bias(const Shape& shape, const Real* bias_uH, Real* rows_RH, CUstream_st* stream);

/// hidden = act(pre + bias), where pre + bias stays in `pre`; with a gate
/// hidden = act(gate + gate_bias) * (pre + bias), where both stay. Biases may be nullptr.
template <class Real>
struct Activate {
  Real* pre_RH;
  const Real* bias_uH;
  Real* gate_RH;  ///< nullptr: no gate
  const Real* gate_bias_uH;
  Real* hidden_RH;
};
template <class Real>
void launch_activate(const Shape& shape, Activation activation, const Activate<Real>& job,
                     CUstream_st* stream);

/// From the gradient of `hidden` those of `pre` and of `gate`, and `hidden` itself once more.
/// pre_grad may be hidden_grad.
template <class Real>
struct ActivateBackward {
  const Real *hidden_grad_RH, *pre_RH;
  const Real* gate_RH;  ///< nullptr: no gate
  Real *hidden_RH, *pre_grad_RH, *gate_grad_RH;
};
template <class Real>
void launch_activate_backward(const Shape& shape, Activation activation,
                              const ActivateBackward<Real>& job, CUstream_st* stream);

/// Number of parts that an expert's rows are summed in.
inline constexpr int kSumParts = 16;

/// bias_grad[e] = sum of the expert's rows, in an order that depends on their number alone.
/// `Sum` is float32 for bfloat16, else Real. partial: [u, kSumParts, H].
template <class Real, class Sum>
void launch_sum_rows(const Shape& shape, const Real* rows_RH, Sum* partial, Real* sum_uH,
                     CUstream_st* stream);

/// Zeroes stack[e], of `size` values, of each expert without rows.
template <class Real>
void launch_zero_unused(const Shape& shape, Real* stack, int64_t size, CUstream_st* stream);

}  // namespace shoal::expert_mlp_cuda
