#pragma once

#include <cstdint>

#include "runtime/device/bfloat16.h"
#include "runtime/kernels/activation.h"

struct CUstream_st;

// R rows  H width  u experts

/// Kernels of moe/experts/expert_mlp.h. Pointers are to GPU memory; each call is queued on the
/// stream. Rows are sorted by expert; those of expert e end before end_u[e]. Rows of none are not
/// touched.
namespace shoal::expert_mlp_cuda {

struct Shape {
  const int32_t* end_u;
  int num_experts;
  int64_t num_rows, width;
};

// A row's weight is 1 where weight_R is nullptr.

/// rows += weight * bias of the expert.
template <class Real>
struct AddBias {
  const Real* bias_uH;
  const Wide<Real>* weight_R;
  Real* rows_RH;
};
template <class Real>
void launch_add_bias(const Shape& shape, const AddBias<Real>& job, CUstream_st* stream);

/// hidden = weight act(pre + bias), where pre + bias stays in `pre`; with a gate
/// hidden = weight act(gate + gate_bias) * (pre + bias), where both stay. Biases may be nullptr.
template <class Real>
struct Activate {
  Real* pre_RH;
  const Real* bias_uH;
  Real* gate_RH;  ///< nullptr: no gate
  const Real* gate_bias_uH;
  const Wide<Real>* weight_R;
  Real* hidden_RH;
};
template <class Real>
void launch_activate(const Shape& shape, Activation activation, const Activate<Real>& job,
                     CUstream_st* stream);

/// From the gradient of weighted `hidden` those of `pre`, `gate` and weight, and weighted `hidden`
/// itself once more. pre_grad may be hidden_grad.
template <class Real>
struct ActivateBackward {
  const Real *hidden_grad_RH, *pre_RH;
  const Real* gate_RH;  ///< nullptr: no gate
  const Wide<Real>* weight_R;
  Real *hidden_RH, *pre_grad_RH, *gate_grad_RH;
  Wide<Real>* weight_grad_R;  ///< nullptr where weight_R is
};
template <class Real>
void launch_activate_backward(const Shape& shape, Activation activation,
                              const ActivateBackward<Real>& job, CUstream_st* stream);

/// weight_grad += <grad, bias of the expert>, what a bias adds to the gradient of a row's weight.
template <class Real>
struct BiasDot {
  const Real *grad_RH, *bias_uH;
  Wide<Real>* weight_grad_R;
};
template <class Real>
void launch_bias_dot(const Shape& shape, const BiasDot<Real>& job, CUstream_st* stream);

/// Number of parts that an expert's rows are summed in.
inline constexpr int kSumParts = 16;

/// sum[e] = weighted sum of the expert's rows, in an order that depends on their number alone.
template <class Real>
struct SumRows {
  const Real* rows_RH;
  const Wide<Real>* weight_R;
  Wide<Real>* partial;  ///< [u, kSumParts, H]
  Real* sum_uH;
};
template <class Real>
void launch_sum_rows(const Shape& shape, const SumRows<Real>& job, CUstream_st* stream);

/// Zeroes stack[e], of `size` values, of each expert without rows.
template <class Real>
void launch_zero_unused(const Shape& shape, Real* stack, int64_t size, CUstream_st* stream);

}  // namespace shoal::expert_mlp_cuda
