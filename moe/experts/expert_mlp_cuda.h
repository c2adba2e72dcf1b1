#pragma once

#include <cstdint>

#include "runtime/device/bfloat16.h"
#include "runtime/kernels/activation.h"

struct CUstream_st;

// R rows  H width  u experts

/// CUDA kernels of the MLP experts (moe/experts/expert_mlp.h) beside the matrix products: biases,
/// activation, gate, and the rows' combine weights (weight_R; nullptr: 1). Pointers are to GPU
/// memory; each call is queued on the stream. Rows are sorted by expert; those of expert e end
/// before end_u[e]. Trailing padding rows stay unchanged.
namespace shoal::expert_mlp_cuda {

struct Shape {
  const int32_t* end_u;
  int num_experts;
  int64_t num_rows, width;
};

/// rows += weight * the expert's bias.
template <class Real>
struct AddBias {
  const Real* bias_uH;
  const Wide<Real>* weight_R;
  Real* rows_RH;
};
template <class Real>
void launch_add_bias(const Shape& shape, const AddBias<Real>& job, CUstream_st* stream);

/// hidden = weight act(pre + bias), and pre += bias; with a gate hidden = weight act(gate +
/// gate_bias) * (pre + bias), and gate += gate_bias too. Biases may be nullptr.
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

/// Backward pass of Activate: computes the gradients of `pre`, `gate` and the weight from that of
/// `hidden`, and recomputes `hidden`. pre_grad_RH may be the memory of hidden_grad_RH.
template <class Real>
struct ActivateBackward {
  const Real *hidden_grad_RH, *pre_RH;
  const Real* gate_RH;  ///< nullptr: no gate
  const Wide<Real>* weight_R;
  Real *hidden_RH, *pre_grad_RH, *gate_grad_RH;
  Wide<Real>* weight_grad_R;  ///< nullptr if weight_R is nullptr
};
template <class Real>
void launch_activate_backward(const Shape& shape, Activation activation,
                              const ActivateBackward<Real>& job, CUstream_st* stream);

/// weight_grad += <grad, the expert's bias>: the part of AddBias in the gradient of a row's weight.
template <class Real>
struct BiasDot {
  const Real *grad_RH, *bias_uH;
  Wide<Real>* weight_grad_R;
};
template <class Real>
void launch_bias_dot(const Shape& shape, const BiasDot<Real>& job, CUstream_st* stream);

/// Number of parts into which the sum over an expert's rows is split.
inline constexpr int kSumParts = 16;

/// sum[e] = weighted sum of the expert's rows, in an order that depends only on their number.
template <class Real>
struct SumRows {
  const Real* rows_RH;
  const Wide<Real>* weight_R;
  Wide<Real>* partial;  ///< [u, kSumParts, H]
  Real* sum_uH;
};
template <class Real>
void launch_sum_rows(const Shape& shape, const SumRows<Real>& job, CUstream_st* stream);

/// Gives each expert places, at least as many as rows: its i-th place holds its row i.
struct Places {
  const int32_t* end_u;      ///< inclusive sums of the experts' rows
  int64_t *row_P, *place_R;  ///< row of each place, -1 without one; place of each row
};
/// `places`: a shape for the experts' places instead of rows.
void launch_places(const Shape& places, const Places& job, CUstream_st* stream);

/// Zeroes stack[e], the gradient of one expert with `size` elements, for each expert without rows.
template <class Real>
void launch_zero_unused(const Shape& shape, Real* stack, int64_t size, CUstream_st* stream);

}  // namespace shoal::expert_mlp_cuda
