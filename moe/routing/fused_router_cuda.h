#pragma once

#include <cstdint>

#include "moe/routing/score_kinds.h"

struct CUstream_st;

// T tokens  U units  K choices

/// CUDA kernels of a top-k router: scores, choices, combine weights and counts in one launch
/// (moe/routing/fused_router.h). Pointers are to GPU memory; calls are queued on the stream.
namespace shoal::fused_router_cuda {

struct Shape {
  int64_t num_tokens;
  int num_units, k;
  RouterScore score;
  Normalise normalise;
};

template <class Real>
struct Forward {
  const Real* logits_TU;
  const Real* bias_U;  ///< added to scores for the choice of units only; nullptr: none
  Real* score_TU;
  int64_t* choice_TK;           ///< units of the choices, best first
  Real *chosen_TK, *weight_TK;  ///< scores and combine weights of the choices
  int64_t* count_U;             ///< choices of each unit; must be zero before the launch
};
template <class Real>
void launch_forward(const Shape& shape, const Forward<Real>& job, CUstream_st* stream);

template <class Real>
struct Backward {
  const Real *score_grad_TU, *weight_grad_TK;  ///< of score_TU, weight_TK; nullptr: 0
  const Real* score_TU;
  const int64_t* choice_TK;
  const Real* weight_TK;
  Real* grad_TU;  ///< output: gradient of the logits
};
template <class Real>
void launch_backward(const Shape& shape, const Backward<Real>& job, CUstream_st* stream);

}  // namespace shoal::fused_router_cuda
