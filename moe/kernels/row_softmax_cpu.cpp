#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "runtime/device/cpu_clones.h"

#pragma GCC optimize("O3", "fp-contract=fast", "no-trapping-math", "no-math-errno")
#include "runtime/kernels/vector_math.h"

// T tokens  U units
namespace shoal {
namespace {

constexpr int64_t kLanes = 32;  // rows that are worked on side by side

/// One block of kLanes rows; `exps` holds [U, kLanes]. Rows beyond `count` repeat the last one.
template <class Real>
inline __attribute__((always_inline)) void softmax_block(const Real* logits, int64_t num_units,
                                                         int64_t count, Real* exps, Real* gate) {
  Real highest[kLanes], sum[kLanes];
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    const Real* row = logits + (lane < count ? lane : count - 1) * num_units;
    highest[lane] = row[0];
    sum[lane] = Real(0);
    for (int64_t u = 0; u < num_units; ++u) exps[u * kLanes + lane] = row[u];
  }
  for (int64_t u = 0; u < num_units; ++u) {
    const Real* column = exps + u * kLanes;
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      highest[lane] = column[lane] > highest[lane] ? column[lane] : highest[lane];
    }
  }
  for (int64_t u = 0; u < num_units; ++u) {
    Real* column = exps + u * kLanes;
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      // 0 * logit: NaN where a logit is NaN or infinite, which exp_of would hide. The difference of
      // two finite ones may be infinite.
      const Real logit = column[lane];
      column[lane] = vector_math::exp_of(logit - highest[lane]) + Real(0) * logit;
      sum[lane] += column[lane];
    }
  }
  for (int64_t lane = 0; lane < kLanes; ++lane) sum[lane] = Real(1) / sum[lane];
  for (int64_t lane = 0; lane < count; ++lane) {
    for (int64_t u = 0; u < num_units; ++u) {
      gate[lane * num_units + u] = exps[u * kLanes + lane] * sum[lane];
    }
  }
}

template <class Real>
inline __attribute__((always_inline)) void softmax_rows(const Real* logits, int64_t num_units,
                                                        int64_t count, Real* exps, Real* gate) {
  for (int64_t row = 0; row < count; row += kLanes) {
    const int64_t left = count - row;
    softmax_block(logits + row * num_units, num_units, left < kLanes ? left : kLanes, exps,
                  gate + row * num_units);
  }
}

SHOAL_CPU_CLONES void softmax(const float* logits, int64_t num_units, int64_t count, float* exps,
                              float* gate) {
  softmax_rows(logits, num_units, count, exps, gate);
}
void softmax(const double* logits, int64_t num_units, int64_t count, double* exps, double* gate) {
  softmax_rows(logits, num_units, count, exps, gate);
}

/// grad_logits = gate * (grad - sum(grad * gate)).
template <class Real>
void softmax_backward(const Real* grad, const Real* gate, int64_t num_units, int64_t count,
                      Real* grad_logits) {
  for (int64_t row = 0; row < count; ++row) {
    Real dot = 0;
    for (int64_t u = 0; u < num_units; ++u) dot += grad[u] * gate[u];
    for (int64_t u = 0; u < num_units; ++u) grad_logits[u] = gate[u] * (grad[u] - dot);
    grad += num_units;
    gate += num_units;
    grad_logits += num_units;
  }
}

int64_t rows_per_task(int64_t num_units) { return kLanes * (8192 / (kLanes * num_units) + 1); }

torch::Tensor row_softmax_cpu(const torch::Tensor& logits_TU) {
  torch::Tensor gate_TU = torch::empty_like(logits_TU);
  const int64_t num_units = logits_TU.size(1);
  AT_DISPATCH_FLOATING_TYPES(logits_TU.scalar_type(), "row_softmax", [&] {
    const scalar_t* logits = logits_TU.const_data_ptr<scalar_t>();
    scalar_t* gate = gate_TU.data_ptr<scalar_t>();
    at::parallel_for(0, logits_TU.size(0), rows_per_task(num_units),
                     [&](int64_t first, int64_t last) {
                       std::vector<scalar_t> exps(static_cast<size_t>(num_units * kLanes));
                       softmax(logits + first * num_units, num_units, last - first, exps.data(),
                               gate + first * num_units);
                     });
  });
  return gate_TU;
}

torch::Tensor row_softmax_backward_cpu(const torch::Tensor& grad_TU, const torch::Tensor& gate_TU) {
  torch::Tensor grad_logits_TU = torch::empty_like(gate_TU);
  const int64_t num_units = gate_TU.size(1);
  AT_DISPATCH_FLOATING_TYPES(gate_TU.scalar_type(), "row_softmax_backward", [&] {
    const scalar_t* grad = grad_TU.const_data_ptr<scalar_t>();
    const scalar_t* gate = gate_TU.const_data_ptr<scalar_t>();
    scalar_t* out = grad_logits_TU.data_ptr<scalar_t>();
    at::parallel_for(
        0, gate_TU.size(0), rows_per_task(num_units), [&](int64_t first, int64_t last) {
          const int64_t begin = first * num_units;
          softmax_backward(grad + begin, gate + begin, num_units, last - first, out + begin);
        });
  });
  return grad_logits_TU;
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("row_softmax", row_softmax_cpu);
  m.impl("row_softmax_backward", row_softmax_backward_cpu);
}

}  // namespace shoal
