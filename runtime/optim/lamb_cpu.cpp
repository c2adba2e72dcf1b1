#include <ATen/Dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "runtime/device/cpu_clones.h"
#include "runtime/kernels/matrix_chunks.h"
#include "runtime/optim/lamb_step.h"

namespace shoal {
namespace {

constexpr int64_t kGroupElements = 1 << 19;  // four tensors of it are 8 MiB in float

/// One chunk of the four tensors.
template <class Real>
struct Span {
  Real* __restrict__ w;
  const Real* __restrict__ g;
  Real* __restrict__ m;
  Real* __restrict__ v;
  int64_t size;
};

struct Squares {
  double weight = 0.0, update = 0.0;
};

/// Averages the gradient and returns the squared norms of w and u. Eight sums side by side, in
/// double: the order is fixed, whatever the width of vectors.
template <class Real>
SHOAL_CPU_CLONES Squares measure(const LambFactors<Real>& f, const Span<Real>& span) {
  constexpr int64_t kLanes = 8;
  double weight[kLanes] = {};
  double update[kLanes] = {};
  const auto add = [&](int64_t i, int64_t lane) __attribute__((always_inline)) {
    average(f, span.g[i], span.m[i], span.v[i]);
    const double w = span.w[i];
    const double u = update_of(f, span.m[i], span.v[i], span.w[i]);
    weight[lane] += w * w;
    update[lane] += u * u;
  };
  const int64_t whole = span.size - span.size % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (int64_t i = whole; i < span.size; ++i) add(i, i - whole);
  Squares sum;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    sum.weight += weight[lane];
    sum.update += update[lane];
  }
  return sum;
}

template <bool kAverages, class Real>
SHOAL_CPU_CLONES void apply(const LambFactors<Real>& f, const Span<Real>& span, Real rate) {
  for (int64_t i = 0; i < span.size; ++i) {
    if constexpr (kAverages) average(f, span.g[i], span.m[i], span.v[i]);
    span.w[i] -= rate * update_of(f, span.m[i], span.v[i], span.w[i]);
  }
}

/// The lists of one call.
struct Lists {
  at::TensorList weights, gradients, m, v;

  template <class Real>
  Span<Real> span(const TensorChunk& chunk) const {
    return {weights[chunk.tensor].mutable_data_ptr<Real>() + chunk.begin,
            gradients[chunk.tensor].const_data_ptr<Real>() + chunk.begin,
            m[chunk.tensor].mutable_data_ptr<Real>() + chunk.begin,
            v[chunk.tensor].mutable_data_ptr<Real>() + chunk.begin, chunk.size};
  }
};

/// With trust ratios.
template <class Real>
void adaptive_step(const Lists& lists, const MatrixChunks& chunks, const LambFactors<Real>& f,
                   double lr, bool trust_clip) {
  std::vector<Squares> squares(chunks.size());
  std::vector<Real> rates(chunks.size());
  // Group by group, so that the second pass finds the first one's tensors in the cache.
  for (const MatrixChunks::Group& group : chunks.groups_of(kGroupElements)) {
    chunks.for_each(group, [&](size_t i) { squares[i] = measure(f, lists.span<Real>(chunks[i])); });
    for (size_t first = group.first, last = first; first < group.last; first = last) {
      Squares sum;
      for (; last < group.last && chunks[last].matrix == chunks[first].matrix; ++last) {
        sum.weight += squares[last].weight;
        sum.update += squares[last].update;
      }
      const auto rate = static_cast<Real>(lr * trust_ratio(sum.weight, sum.update, trust_clip));
      std::fill(rates.begin() + static_cast<std::ptrdiff_t>(first),
                rates.begin() + static_cast<std::ptrdiff_t>(last), rate);
    }
    chunks.for_each(group,
                    [&](size_t i) { apply<false>(f, lists.span<Real>(chunks[i]), rates[i]); });
  }
}

void lamb_cpu(at::TensorList weights, at::TensorList gradients, at::TensorList m, at::TensorList v,
              at::IntArrayRef num_matrices, at::ArrayRef<double> factors, double lr, bool adapts,
              bool trust_clip) {
  const Lists lists{weights, gradients, m, v};
  const MatrixChunks chunks(weights, num_matrices);
  AT_DISPATCH_FLOATING_TYPES(weights[0].scalar_type(), "lamb_", [&] {
    const auto f = lamb_factors<scalar_t>(factors);
    if (adapts) return adaptive_step(lists, chunks, f, lr, trust_clip);
    chunks.for_each([&](size_t i) {
      apply<true>(f, lists.span<scalar_t>(chunks[i]), static_cast<scalar_t>(lr));
    });
  });
}

at::Tensor lamb_measure_cpu(at::TensorList weights, at::TensorList gradients, at::TensorList m,
                            at::TensorList v, at::ArrayRef<double> factors) {
  const Lists lists{weights, gradients, m, v};
  const MatrixChunks chunks(weights);
  std::vector<Squares> squares(chunks.size());
  AT_DISPATCH_FLOATING_TYPES(weights[0].scalar_type(), "lamb_measure_", [&] {
    const auto f = lamb_factors<scalar_t>(factors);
    chunks.for_each([&](size_t i) { squares[i] = measure(f, lists.span<scalar_t>(chunks[i])); });
  });
  at::Tensor sums = at::zeros({std::ssize(weights), 2}, at::kDouble);
  double* sum = sums.mutable_data_ptr<double>();
  for (size_t i = 0; i < chunks.size(); ++i) {
    sum[2 * chunks[i].tensor] += squares[i].weight;
    sum[2 * chunks[i].tensor + 1] += squares[i].update;
  }
  return sums;
}

void lamb_apply_cpu(at::TensorList weights, at::TensorList m, at::TensorList v,
                    const at::Tensor& rates, at::ArrayRef<double> factors) {
  const Lists lists{weights, weights, m, v};  // gradients have been averaged
  const MatrixChunks chunks(weights);
  const double* rate = rates.const_data_ptr<double>();
  AT_DISPATCH_FLOATING_TYPES(weights[0].scalar_type(), "lamb_apply_", [&] {
    const auto f = lamb_factors<scalar_t>(factors);
    chunks.for_each([&](size_t i) {
      apply<false>(f, lists.span<scalar_t>(chunks[i]),
                   static_cast<scalar_t>(rate[chunks[i].tensor]));
    });
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("lamb_", &lamb_cpu);
  m.impl("lamb_measure_", &lamb_measure_cpu);
  m.impl("lamb_apply_", &lamb_apply_cpu);
}

}  // namespace shoal
