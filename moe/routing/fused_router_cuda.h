#pragma once

#include <cstdint>

struct CUstream_st;

// T tokens  U units  K choices

/// Kernels of moe/routing/fused_router.h. Pointers are to GPU memory; each call is queued on the
/// stream.
namespace shoal::fused_router_cuda {

enum class Score { kSoftmax, kSigmoid };
enum class Weights { kScore, kTopkSoftmax, kSum };

struct Shape {
  int64_t num_tokens;
  int num_units, k;
  Score score;
  Weights weights;
  double least_sum;  ///< added to a sum of scores before something is divided by it
};

template <class Real>
struct Forward {
  const Real* logits_TU;
  const Real* bias_U;  ///< nullptr: none
  Real* score_TU;
  int64_t* choice_TK;
  Real *chosen_TK, *weight_TK;
  int64_t* count_U;
  int32_t* end_U;
  int32_t* scratch_U1;  ///< zeros: counts, and how many blocks are done
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
