#pragma once

#include <cstdint>

#include "runtime/device/bfloat16.h"
#include "runtime/device/cpu_clones.h"
#include "runtime/kernels/activation.h"
#include "runtime/kernels/activation_functions.h"
#include "runtime/kernels/vector_math.h"

// R rows of one expert  H hidden width  O width out

/// CPU loops of the MLP experts (moe/experts/expert_mlp.h) beside the matrix products: biases,
/// activation, gate, rows' weights. They run on one thread, on contiguous float32, float64 or
/// bfloat16 rows (computed in float32). Only expert_mlp_cpu.cpp includes this, after a `#pragma GCC
/// optimize` for these loops: -O3, fused multiply-adds, no math errno, no floating-point traps.
namespace shoal::expert_rows {

using activation_functions::Activated;
using activation_functions::with_activation;
using vector_math::put;
using vector_math::Real;
using vector_math::real_of;

constexpr int64_t kLanes = 16;

/// hidden = weight act(pre + bias), and pre += bias; with a gate hidden = weight act(gate +
/// gate_bias) * (pre + bias), and gate += gate_bias too.
template <class Value>
struct Activate {
  Value* pre_RH;
  const Value* bias_H;  ///< nullptr: none
  Value* gate_RH;       ///< nullptr: no gate
  const Value* gate_bias_H;
  const Real<Value>* weight_R;  ///< nullptr: 1
  Value* hidden_RH;
  int64_t width;
  Activation activation;
};

/// Backward pass of Activate. Recomputes hidden and computes the gradients of pre and gate. Also
/// computes dot, a part of the gradient of the row's weight: <grad, unweighted hidden>.
template <class Value>
struct ActivateBackward {
  Value* grad_RH;  ///< gradient of hidden; overwritten with the gradient of pre
  const Value* pre_RH;
  const Value* gate_RH;  ///< nullptr: no gate
  Value* hidden_RH;
  Value* gate_grad_RH;
  const Real<Value>* weight_R;  ///< nullptr: 1
  Real<Value>* dot_R;           ///< nullptr: not computed
  int64_t width;
  Activation activation;
};

/// Backward pass of a bias that is added to rows before their weights. For each row adds weight *
/// grad to the gradient of the bias, and <grad, bias> to the gradient of the row's weight.
template <class Value>
struct WeightedBias {
  const Value* grad_RO;
  const Value* bias_O;
  const Real<Value>* weight_R;
  Real<Value>* bias_grad_O;
  Real<Value>* dot_R;
  int64_t width;
};

template <class Value>
SHOAL_INLINE void add_bias(const Value* __restrict__ bias, int64_t width, Value* __restrict__ x) {
  if (bias == nullptr) return;
  for (int64_t c = 0; c < width; ++c) put(x[c], real_of(x[c]) + real_of(bias[c]));
}

template <class Act, class Value>
SHOAL_INLINE void activate_row(const Activate<Value>& job, int64_t r) {
  Value* __restrict__ pre = job.pre_RH + r * job.width;
  Value* __restrict__ hidden = job.hidden_RH + r * job.width;
  const Real<Value> weight = job.weight_R == nullptr ? Real<Value>(1) : job.weight_R[r];
  add_bias(job.bias_H, job.width, pre);
  if (job.gate_RH == nullptr) {
    for (int64_t c = 0; c < job.width; ++c) put(hidden[c], weight * Act::at(real_of(pre[c])).value);
    return;
  }
  Value* __restrict__ gate = job.gate_RH + r * job.width;
  add_bias(job.gate_bias_H, job.width, gate);
  for (int64_t c = 0; c < job.width; ++c) {
    put(hidden[c], weight * (Act::at(real_of(gate[c])).value * real_of(pre[c])));
  }
}

template <class Value>
SHOAL_INLINE void activate_any(const Activate<Value>& job, int64_t first, int64_t last) {
  with_activation(
      job.activation, [&]<class Act>(Act) __attribute__((always_inline)) {
        for (int64_t r = first; r < last; ++r) activate_row<Act>(job, r);
      });
}

/// Computes one element; returns its term of <gradient of hidden, hidden>.
template <class Act, bool kGate, class Value>
SHOAL_INLINE Real<Value> element_backward(const ActivateBackward<Value>& job, Real<Value> weight,
                                          int64_t i) {
  const Real<Value> grad = real_of(job.grad_RH[i]), pre = real_of(job.pre_RH[i]);
  const Real<Value> weighted = weight * grad;
  if constexpr (kGate) {
    const Activated<Real<Value>> act = Act::at(real_of(job.gate_RH[i]));
    const Real<Value> hidden = act.value * pre;
    put(job.hidden_RH[i], weight * hidden);
    put(job.grad_RH[i], weighted * act.value);
    put(job.gate_grad_RH[i], weighted * (act.derivative * pre));
    return grad * hidden;
  } else {
    const Activated<Real<Value>> act = Act::at(pre);
    put(job.hidden_RH[i], weight * act.value);
    put(job.grad_RH[i], weighted * act.derivative);
    return grad * act.value;
  }
}

template <class Act, bool kGate, class Value>
SHOAL_INLINE void rows_backward(const ActivateBackward<Value>& job, int64_t first, int64_t last) {
  for (int64_t r = first; r < last; ++r) {
    const Real<Value> weight = job.weight_R == nullptr ? Real<Value>(1) : job.weight_R[r];
    Real<Value> lanes[kLanes] = {};
    int64_t c = 0;
    for (; c + kLanes <= job.width; c += kLanes) {
      const int64_t at = r * job.width + c;
#pragma GCC ivdep
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] += element_backward<Act, kGate>(job, weight, at + lane);
      }
    }
    Real<Value> dot = 0;
    for (; c < job.width; ++c) dot += element_backward<Act, kGate>(job, weight, r * job.width + c);
    for (const Real<Value> lane : lanes) dot += lane;
    if (job.dot_R != nullptr) job.dot_R[r] = dot;
  }
}

template <class Value>
SHOAL_INLINE void backward_any(const ActivateBackward<Value>& job, int64_t first, int64_t last) {
  with_activation(
      job.activation, [&]<class Act>(Act) __attribute__((always_inline)) {
        job.gate_RH != nullptr ? rows_backward<Act, true>(job, first, last)
                               : rows_backward<Act, false>(job, first, last);
      });
}

template <class Value>
SHOAL_INLINE void weighted_bias_any(const WeightedBias<Value>& job, int64_t num_rows) {
  for (int64_t r = 0; r < num_rows; ++r) {
    const Value* __restrict__ grad = job.grad_RO + r * job.width;
    Real<Value>* __restrict__ sum = job.bias_grad_O;
    const Real<Value> weight = job.weight_R[r];
    Real<Value> lanes[kLanes] = {};
    int64_t c = 0;
    for (; c + kLanes <= job.width; c += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const Real<Value> g = real_of(grad[c + lane]);
        sum[c + lane] += weight * g;
        lanes[lane] += g * real_of(job.bias_O[c + lane]);
      }
    }
    Real<Value> dot = 0;
    for (; c < job.width; ++c) {
      sum[c] += weight * real_of(grad[c]);
      dot += real_of(grad[c]) * real_of(job.bias_O[c]);
    }
    for (const Real<Value> lane : lanes) dot += lane;
    job.dot_R[r] += dot;
  }
}

// Instances for each dtype, for the rows [first, last) or for all.
#define SHOAL_EXPERT_ROWS(Value)                                                                   \
  static SHOAL_CPU_CLONES void activate(const Activate<Value>& job, int64_t first, int64_t last) { \
    activate_any(job, first, last);                                                                \
  }                                                                                                \
  static SHOAL_CPU_CLONES void activate_backward(const ActivateBackward<Value>& job,               \
                                                 int64_t first, int64_t last) {                    \
    backward_any(job, first, last);                                                                \
  }                                                                                                \
  static SHOAL_CPU_CLONES void add_weighted_bias(const WeightedBias<Value>& job,                   \
                                                 int64_t num_rows) {                               \
    weighted_bias_any(job, num_rows);                                                              \
  }

SHOAL_EXPERT_ROWS(float)
SHOAL_EXPERT_ROWS(double)
SHOAL_EXPERT_ROWS(Bfloat16)
#undef SHOAL_EXPERT_ROWS

}  // namespace shoal::expert_rows
