#pragma once

#include <cstdint>

#include "runtime/device/bfloat16.h"
#include "runtime/kernels/activation.h"
#include "runtime/kernels/vector_math.h"

// R rows of one expert  H hidden width  O width out

/// The CPU loops of moe/experts/expert_mlp.h other than matrix products. One thread; float32,
/// float64, and bfloat16, computed in float32; rows are contiguous.
namespace shoal {

/// hidden = weight act(pre + bias), where pre + bias stays in `pre`; with a gate
/// hidden = weight act(gate + gate_bias) * (pre + bias), where both stay.
template <class Value>
struct ActivateExpert {
  Value* pre_RH;
  const Value* bias_H;  ///< nullptr: none
  Value* gate_RH;       ///< nullptr: no gate
  const Value* gate_bias_H;
  const vector_math::Real<Value>* weight_R;  ///< nullptr: 1
  Value* hidden_RH;
  int64_t width;
  Activation activation;
};

/// Rows [first, last).
void activate_expert(const ActivateExpert<float>& job, int64_t first, int64_t last);
void activate_expert(const ActivateExpert<double>& job, int64_t first, int64_t last);
void activate_expert(const ActivateExpert<Bfloat16>& job, int64_t first, int64_t last);

/// The backward pass: `hidden` once more and the gradients of `pre` and `gate`, all times the row's
/// weight, and what that weight's gradient gets from here, <gradient of hidden, hidden>.
template <class Value>
struct ActivateExpertBackward {
  Value* grad_RH;  ///< gradient of hidden at weight 1; becomes that of pre
  const Value* pre_RH;
  const Value* gate_RH;  ///< nullptr: no gate
  Value* hidden_RH;
  Value* gate_grad_RH;
  const vector_math::Real<Value>* weight_R;  ///< nullptr: 1
  vector_math::Real<Value>* dot_R;           ///< nullptr: not wanted
  int64_t width;
  Activation activation;
};

/// Rows [first, last).
void activate_expert_backward(const ActivateExpertBackward<float>& job, int64_t first,
                              int64_t last);
void activate_expert_backward(const ActivateExpertBackward<double>& job, int64_t first,
                              int64_t last);
void activate_expert_backward(const ActivateExpertBackward<Bfloat16>& job, int64_t first,
                              int64_t last);

/// What a bias that is added to all rows takes part in: adds weight * grad of each row to its
/// gradient, and <grad, bias> to the gradient of the row's weight.
template <class Value>
struct WeightedBias {
  const Value* grad_RO;
  const Value* bias_O;
  const vector_math::Real<Value>* weight_R;
  vector_math::Real<Value>* bias_grad_O;
  vector_math::Real<Value>* dot_R;
  int64_t width;
};

void add_weighted_bias(const WeightedBias<float>& job, int64_t num_rows);
void add_weighted_bias(const WeightedBias<double>& job, int64_t num_rows);
void add_weighted_bias(const WeightedBias<Bfloat16>& job, int64_t num_rows);

}  // namespace shoal
