#include <torch/library.h>

#include <algorithm>
#include <cmath>
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

template <class Real>
SHOAL_INLINE Real update_of(const LambFactors<Real>& f, Real m, Real v, Real w) {
  return m * f.scale1 / (std::sqrt(v) * f.scale2 + f.eps) + f.weight_decay * w;
}

template <class Real>
SHOAL_INLINE void average(const LambFactors<Real>& f, Real g, Real& m, Real& v) {
  m = f.beta1 * m + f.one_minus_beta1 * g;
  v = f.beta2 * v + f.one_minus_beta2 * (g * g);
}

/// Averages the gradient and returns the squared norms of w and u. Eight sums side by side, in
/// double: the order is fixed, whatever the width of vectors.
template <class Real>
SHOAL_INLINE Squares measure_span(const LambFactors<Real>& f, const Span<Real>& span) {
  constexpr int64_t kLanes = 8;
  double weight[kLanes] = {};
  double update[kLanes] = {};
  const int64_t whole = span.size - span.size % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      average(f, span.g[i + lane], span.m[i + lane], span.v[i + lane]);
      const double w = span.w[i + lane];
      const double u = update_of(f, span.m[i + lane], span.v[i + lane], span.w[i + lane]);
      weight[lane] += w * w;
      update[lane] += u * u;
    }
  }
  for (int64_t i = whole; i < span.size; ++i) {
    average(f, span.g[i], span.m[i], span.v[i]);
    const double w = span.w[i];
    const double u = update_of(f, span.m[i], span.v[i], span.w[i]);
    weight[i - whole] += w * w;
    update[i - whole] += u * u;
  }
  Squares sum;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    sum.weight += weight[lane];
    sum.update += update[lane];
  }
  return sum;
}

template <class Real>
SHOAL_INLINE void apply_span(const LambFactors<Real>& f, const Span<Real>& span, Real rate) {
  for (int64_t i = 0; i < span.size; ++i) {
    span.w[i] -= rate * update_of(f, span.m[i], span.v[i], span.w[i]);
  }
}

template <class Real>
SHOAL_INLINE void average_and_apply_span(const LambFactors<Real>& f, const Span<Real>& span,
                                         Real rate) {
  for (int64_t i = 0; i < span.size; ++i) {
    average(f, span.g[i], span.m[i], span.v[i]);
    span.w[i] -= rate * update_of(f, span.m[i], span.v[i], span.w[i]);
  }
}

// Clones cannot be made of templates.
#define SHOAL_LAMB_SPANS(Real)                                                                 \
  SHOAL_CPU_CLONES Squares measure(const LambFactors<Real>& f, const Span<Real>& span) {       \
    return measure_span(f, span);                                                              \
  }                                                                                            \
  SHOAL_CPU_CLONES void apply(const LambFactors<Real>& f, const Span<Real>& span, Real rate) { \
    apply_span(f, span, rate);                                                                 \
  }                                                                                            \
  SHOAL_CPU_CLONES void average_and_apply(const LambFactors<Real>& f, const Span<Real>& span,  \
                                          Real rate) {                                         \
    average_and_apply_span(f, span, rate);                                                     \
  }
SHOAL_LAMB_SPANS(float)
SHOAL_LAMB_SPANS(double)
#undef SHOAL_LAMB_SPANS

/// The lists of one call.
struct Lists {
  at::TensorList weights, gradients, m, v;

  template <class Real>
  Span<Real> span(const MatrixChunk& chunk) const {
    return {weights[chunk.tensor].mutable_data_ptr<Real>() + chunk.begin,
            gradients[chunk.tensor].const_data_ptr<Real>() + chunk.begin,
            m[chunk.tensor].mutable_data_ptr<Real>() + chunk.begin,
            v[chunk.tensor].mutable_data_ptr<Real>() + chunk.begin, chunk.size};
  }
};

struct Trust {
  bool adapts, clips;
};

template <class Real>
void step(const Lists& lists, const MatrixChunks& chunks, const LambFactors<Real>& f, double lr,
          const Trust& trust) {
  if (!trust.adapts) {
    chunks.for_each([&](size_t i) {
      average_and_apply(f, lists.span<Real>(chunks[i]), static_cast<Real>(lr));
    });
    return;
  }
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
      const auto rate = static_cast<Real>(lr * trust_ratio(sum.weight, sum.update, trust.clips));
      std::fill(rates.begin() + static_cast<std::ptrdiff_t>(first),
                rates.begin() + static_cast<std::ptrdiff_t>(last), rate);
    }
    chunks.for_each(group, [&](size_t i) { apply(f, lists.span<Real>(chunks[i]), rates[i]); });
  }
}

template <class Run>
void dispatch_real(const at::TensorList& weights, const Run& run) {
  if (weights[0].scalar_type() == at::kDouble) {
    run(double{});
  } else {
    run(float{});
  }
}

void lamb_cpu(at::TensorList weights, at::TensorList gradients, at::TensorList m, at::TensorList v,
              at::IntArrayRef num_matrices, double lr, double beta1, double beta2,
              double correction1, double correction2, double eps, double weight_decay, bool adapts,
              bool trust_clip) {
  const LambNumbers numbers{beta1, beta2, correction1, correction2, eps, weight_decay};
  dispatch_real(weights, [&](auto zero) {
    using Real = decltype(zero);
    step<Real>({weights, gradients, m, v}, {weights, num_matrices}, numbers.factors<Real>(), lr,
               {adapts, trust_clip});
  });
}

at::Tensor lamb_measure_cpu(at::TensorList weights, at::TensorList gradients, at::TensorList m,
                            at::TensorList v, double beta1, double beta2, double correction1,
                            double correction2, double eps, double weight_decay) {
  const LambNumbers numbers{beta1, beta2, correction1, correction2, eps, weight_decay};
  const std::vector<int64_t> whole(weights.size(), 1);
  const MatrixChunks chunks(weights, whole);
  std::vector<Squares> squares(chunks.size());
  dispatch_real(weights, [&](auto zero) {
    using Real = decltype(zero);
    const Lists lists{weights, gradients, m, v};
    const LambFactors<Real> f = numbers.factors<Real>();
    chunks.for_each([&](size_t i) { squares[i] = measure(f, lists.span<Real>(chunks[i])); });
  });
  at::Tensor sums = at::zeros({static_cast<int64_t>(weights.size()), 2}, at::kDouble);
  double* sum = sums.mutable_data_ptr<double>();
  for (size_t i = 0; i < chunks.size(); ++i) {
    sum[2 * chunks[i].tensor] += squares[i].weight;
    sum[2 * chunks[i].tensor + 1] += squares[i].update;
  }
  return sums;
}

void lamb_apply_cpu(at::TensorList weights, at::TensorList m, at::TensorList v,
                    const at::Tensor& rates, double correction1, double correction2, double eps,
                    double weight_decay) {
  const LambNumbers numbers{0.0, 0.0, correction1, correction2, eps, weight_decay};
  const std::vector<int64_t> whole(weights.size(), 1);
  const MatrixChunks chunks(weights, whole);
  const double* rate = rates.const_data_ptr<double>();
  dispatch_real(weights, [&](auto zero) {
    using Real = decltype(zero);
    const Lists lists{weights, weights, m, v};  // gradients have been averaged
    const LambFactors<Real> f = numbers.factors<Real>();
    chunks.for_each([&](size_t i) {
      apply(f, lists.span<Real>(chunks[i]), static_cast<Real>(rate[chunks[i].tensor]));
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
