#pragma once

#include <cstdint>

#include "moe/routing/score_kinds.h"

struct CUstream_st;

// T tokens  U units  K choices

/// Kernels of moe/routing/fused_router.h. Pointers are to GPU memory; each call is queued on the
/// stream.
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
  const Real* bias_U;  ///< nullptr: none
  Real* score_TU;
  int64_t* choice_TK;
  Real *chosen_TK, *weight_TK;
  int64_t* count_U;  ///< zero before the launch
};
template <class Real>
void launch_forward(const Shape& shape, const Forward<Real>& job, CUstream_st* stream);

template <class Real>
struct Backward {
  const Real *score_grad_TU, *weight_grad_TK;  ///< nullptr: zeros
  const Real* score_TU;
  const int64_t* choice_TK;
  const Real* weight_TK;
  Real* grad_TU;
};
template <class Real>
void launch_backward(const Shape& shape, const Backward<Real>& job, CUstream_st* stream);

}  // namespace shoal::fused_router_cuda
