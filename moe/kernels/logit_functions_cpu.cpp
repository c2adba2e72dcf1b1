#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "runtime/device/cpu_clones.h"

// Contraction stays off, so that vectors, the elements after them and all clones give equal bits.
#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")
#include "moe/kernels/logit_math.h"

// R rows  C columns
namespace shoal {
namespace {

constexpr int64_t kGrain = 4096, kBlock = 256;

#define SHOAL_LOGIT_LOOPS(Real)                                                             \
  SHOAL_CPU_CLONES void sigmoids(const Real* logits, Real* out, int64_t count) {            \
    for (int64_t i = 0; i < count; ++i)                                                     \
      out[i] = static_cast<Real>(logit_math::sigmoid(logits[i]));                           \
  }                                                                                         \
  SHOAL_CPU_CLONES void softpluses(const Real* logits, Real* out, int64_t count) {          \
    for (int64_t i = 0; i < count; ++i)                                                     \
      out[i] = static_cast<Real>(logit_math::softplus(logits[i]));                          \
  }                                                                                         \
  SHOAL_CPU_CLONES void exponentials(const Real* x, Real highest, double* out, int64_t n) { \
    for (int64_t i = 0; i < n; ++i) {                                                       \
      out[i] = logit_math::exp_below(static_cast<double>(x[i]) - highest);                  \
    }                                                                                       \
  }

SHOAL_LOGIT_LOOPS(float)
SHOAL_LOGIT_LOOPS(double)
#undef SHOAL_LOGIT_LOOPS

template <class Real>
double logsumexp(const Real* x, int64_t count) {
  Real highest = x[0];
  for (int64_t i = 1; i < count; ++i) highest = x[i] > highest ? x[i] : highest;
  double part[kBlock], sum = 0.0;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t size = std::min(kBlock, count - first);
    exponentials(x + first, highest, part, size);
    for (int64_t i = 0; i < size; ++i) sum += part[i];
  }
  return highest + std::log(sum);
}

template <class Loop>
torch::Tensor each(const torch::Tensor& logits, const Loop& loop) {
  torch::Tensor out = torch::empty_like(logits);
  AT_DISPATCH_FLOATING_TYPES(logits.scalar_type(), "logit_function", [&] {
    const scalar_t* in = logits.const_data_ptr<scalar_t>();
    scalar_t* result = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, logits.numel(), kGrain, [&](int64_t first, int64_t last) {
      loop(in + first, result + first, last - first);
    });
  });
  return out;
}

torch::Tensor logit_sigmoid_cpu(const torch::Tensor& logits) {
  return each(logits, [](const auto* in, auto* out, int64_t count) { sigmoids(in, out, count); });
}

torch::Tensor logit_softplus_cpu(const torch::Tensor& logits) {
  return each(logits, [](const auto* in, auto* out, int64_t count) { softpluses(in, out, count); });
}

torch::Tensor row_logsumexp_cpu(const torch::Tensor& x_RC) {
  const int64_t num_rows = x_RC.size(0), count = x_RC.size(1);
  torch::Tensor out_R = torch::empty({num_rows}, x_RC.options());
  AT_DISPATCH_FLOATING_TYPES(x_RC.scalar_type(), "row_logsumexp", [&] {
    const scalar_t* x = x_RC.const_data_ptr<scalar_t>();
    scalar_t* out = out_R.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, num_rows, kGrain / count + 1, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        out[row] = static_cast<scalar_t>(logsumexp(x + row * count, count));
      }
    });
  });
  return out_R;
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("logit_sigmoid", logit_sigmoid_cpu);
  m.impl("logit_softplus", logit_softplus_cpu);
  m.impl("row_logsumexp", row_logsumexp_cpu);
}

}  // namespace shoal
