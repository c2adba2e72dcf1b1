#pragma once

#include <cstdint>

struct CUstream_st;

// R rows  C columns

/// CUDA kernels for functions of a MoE router's logits (moe/kernels/logit_functions.h). Pointers
/// are to GPU memory; each call is queued on the stream.
namespace shoal::logit_functions_cuda {

/// Elementwise functions, or functions of each row.
enum class Function {
  kSigmoid,
  kSoftplus,
  kLogsumexp,
  kSoftmax,
  kSoftmaxBackward,  ///< gate * (in - sum(in * gate)) for in = output's gradient, gate = softmax
};

template <class Real>
struct Rows {
  const Real *in_RC, *gate_RC;  ///< gate_RC: kSoftmaxBackward only
  Real* out;                    ///< [R] of kLogsumexp, else [R, C]
  int64_t num_rows, num_columns;
};
template <class Real>
void launch(Function function, const Rows<Real>& rows, CUstream_st* stream);

}  // namespace shoal::logit_functions_cuda
