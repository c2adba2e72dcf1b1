#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "runtime/activation_rows.h"
#include "runtime/bias_activation.h"
#include "runtime/cpu_clones.h"

// The loops below are plain so that the compiler vectorises them, once for each instruction set.
// After this pragma, inline functions of other headers are no longer inlined: hot code uses
// builtins.
#pragma GCC optimize("O3", "fp-contract=fast", "no-trapping-math", "no-math-errno")
#include "runtime/vector_math.h"

namespace shoal {
namespace {

constexpr double kInvSqrt2 = 0.70710678118654752440;
constexpr double kInvSqrt2Pi = 0.39894228040143267794;
constexpr double kSqrt2OverPi = 0.79788456080286535588;
constexpr double kTanhCubic = 0.044715;

using vector_math::by_sign;
using vector_math::exp_of;

template <class Real>
struct Activated {
  Real value, derivative;
};

struct Gelu {
  static SHOAL_INLINE Activated<double> at(double x) {
    const double cdf = 0.5 * std::erfc(-x * kInvSqrt2);
    return {x * cdf, cdf + x * kInvSqrt2Pi * std::exp(-0.5 * x * x)};
  }
  // Phi(-z) = exp(-z^2 / 2) t Q(t), t = 1 / (1 + 0.35 z), z >= 0: the form of Abramowitz and Stegun
  // 26.2.17 with Q of degree 8, interpolated at Chebyshev nodes; relative error 4e-8 for z < 14.5.
  static SHOAL_INLINE Activated<float> at(float x) {
    const float z = __builtin_fabsf(x);
    const float t = 1.0f / (1.0f + 0.35f * z);
    float q = -0.0297322758107f;
    q = q * t + 0.146783986077f;
    q = q * t - 0.261410543238f;
    q = q * t + 0.16551016483f;
    q = q * t - 0.0273219105835f;
    q = q * t + 0.107212499401f;
    q = q * t + 0.119425092658f;
    q = q * t + 0.139914333902f;
    q = q * t + 0.139618635013f;
    const float density = exp_of(-0.5f * x * x);
    const float tail = density * (t * q);
    const float cdf = by_sign(x, tail, 1.0f - tail);
    return {x * cdf, cdf + x * density * static_cast<float>(kInvSqrt2Pi)};
  }
};

struct GeluTanh {
  // 0.5 (1 + tanh(u)) = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
  template <class Real>
  static SHOAL_INLINE Activated<Real> at(Real x) {
    const Real scale = static_cast<Real>(2 * kSqrt2OverPi);
    const Real cubic = static_cast<Real>(kTanhCubic);
    const Real x2 = x * x;
    const Real gate = Real(1) / (Real(1) + exp_of(-scale * x * (Real(1) + cubic * x2)));
    const Real slope = scale * (Real(1) + Real(3) * cubic * x2);
    return {x * gate, gate + x * gate * (Real(1) - gate) * slope};
  }
};

struct Relu {
  template <class Real>
  static SHOAL_INLINE Activated<Real> at(Real x) {
    return {x < Real(0) ? Real(0) : x, x > Real(0) ? Real(1) : Real(0)};
  }
};

struct Silu {
  template <class Real>
  static SHOAL_INLINE Activated<Real> at(Real x) {
    const Real gate = Real(1) / (Real(1) + exp_of(-x));
    return {x * gate, gate * (Real(1) + x * (Real(1) - gate))};
  }
};

struct SquaredRelu {
  template <class Real>
  static SHOAL_INLINE Activated<Real> at(Real x) {
    const Real positive = x < Real(0) ? Real(0) : x;
    return {positive * positive, Real(2) * positive};
  }
};

enum class Derivative { kNone, kInPlace, kApart };

template <class Act, Derivative kDerivative, class Real>
SHOAL_INLINE void forward_rows(const ActivationRows<Real>& rows, int64_t first, int64_t last) {
  constexpr bool kApart = kDerivative == Derivative::kApart;
  for (int64_t r = first; r < last; ++r) {
    const int64_t begin = r * rows.columns;
    Real* __restrict__ x = rows.x + begin;
    Real* __restrict__ y = rows.y + begin;
    Real* __restrict__ derivative = kApart ? rows.derivative + begin : nullptr;
    const auto put = [&](int64_t c, Real value) __attribute__((always_inline)) {
      const Activated<Real> result = Act::at(value);
      y[c] = result.value;
      if constexpr (kDerivative == Derivative::kInPlace) x[c] = result.derivative;
      if constexpr (kApart) derivative[c] = result.derivative;
    };
    if (rows.bias_by_column) {
      const Real* __restrict__ bias = rows.bias;
      for (int64_t c = 0; c < rows.columns; ++c) put(c, x[c] + bias[c]);
    } else {
      const Real bias = rows.bias == nullptr ? Real(0) : rows.bias[r % rows.num_bias];
      for (int64_t c = 0; c < rows.columns; ++c) put(c, x[c] + bias);
    }
  }
}

template <class Act, class Real>
SHOAL_INLINE void forward_as(const ActivationRows<Real>& rows, int64_t first, int64_t last) {
  if (!rows.keep_derivative) {
    forward_rows<Act, Derivative::kNone>(rows, first, last);
  } else if (rows.derivative == nullptr || rows.derivative == rows.x) {
    forward_rows<Act, Derivative::kInPlace>(rows, first, last);
  } else {
    forward_rows<Act, Derivative::kApart>(rows, first, last);
  }
}

template <class Real>
SHOAL_INLINE void forward_any(const ActivationRows<Real>& rows, int64_t first, int64_t last) {
  switch (rows.activation) {
    case Activation::kGelu:
      return forward_as<Gelu>(rows, first, last);
    case Activation::kGeluTanh:
      return forward_as<GeluTanh>(rows, first, last);
    case Activation::kRelu:
      return forward_as<Relu>(rows, first, last);
    case Activation::kSilu:
      return forward_as<Silu>(rows, first, last);
    case Activation::kSquaredRelu:
      return forward_as<SquaredRelu>(rows, first, last);
  }
}

}  // namespace

SHOAL_CPU_CLONES void activate_rows(const ActivationRows<float>& rows, int64_t first,
                                    int64_t last) {
  forward_any(rows, first, last);
}
void activate_rows(const ActivationRows<double>& rows, int64_t first, int64_t last) {
  forward_any(rows, first, last);
}

namespace {

template <class Real>
SHOAL_INLINE void multiply_row(Real* __restrict__ grad, const Real* __restrict__ derivative,
                               int64_t columns) {
  for (int64_t c = 0; c < columns; ++c) grad[c] *= derivative[c];
}

template <class Real>
SHOAL_INLINE void multiply_add_row(Real* __restrict__ grad, const Real* __restrict__ derivative,
                                   Real* __restrict__ sum, int64_t columns) {
  for (int64_t c = 0; c < columns; ++c) {
    const Real product = grad[c] * derivative[c];
    grad[c] = product;
    sum[c] += product;
  }
}

template <class Real>
SHOAL_INLINE Real multiply_sum_row(Real* __restrict__ grad, const Real* __restrict__ derivative,
                                   int64_t columns) {
  constexpr int64_t kLanes = 16;
  Real lanes[kLanes] = {};
  int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const Real product = grad[c + lane] * derivative[c + lane];
      grad[c + lane] = product;
      lanes[lane] += product;
    }
  }
  Real sum = 0;
  for (; c < columns; ++c) {
    grad[c] *= derivative[c];
    sum += grad[c];
  }
  for (const Real lane : lanes) sum += lane;
  return sum;
}

template <class Real>
SHOAL_INLINE void backward_any(const ActivationGradientRows<Real>& rows, int64_t first,
                               int64_t last, Real* sum) {
  for (int64_t r = first; r < last; ++r) {
    Real* grad = rows.grad + r * rows.columns;
    const Real* derivative = rows.derivative + r * rows.columns;
    if (sum == nullptr) {
      multiply_row(grad, derivative, rows.columns);
    } else if (rows.bias_by_column) {
      multiply_add_row(grad, derivative, sum, rows.columns);
    } else {
      sum[r % rows.num_bias] += multiply_sum_row(grad, derivative, rows.columns);
    }
  }
}

}  // namespace

SHOAL_CPU_CLONES void activate_rows_backward(const ActivationGradientRows<float>& rows,
                                             int64_t first, int64_t last, float* sum) {
  backward_any(rows, first, last, sum);
}
SHOAL_CPU_CLONES void activate_rows_backward(const ActivationGradientRows<double>& rows,
                                             int64_t first, int64_t last, double* sum) {
  backward_any(rows, first, last, sum);
}

namespace {

/// x [outer, n, inner] as rows: [outer, n] with a bias a column if inner is 1, else [outer * n,
/// inner] with a bias a row.
struct Layout {
  int64_t rows, columns, num_bias;
  bool bias_by_column;
};

Layout layout_of(const torch::Tensor& x, int64_t dim) {
  const int64_t n = x.size(dim);
  int64_t inner = 1;
  for (int64_t d = dim + 1; d < x.dim(); ++d) inner *= x.size(d);
  const int64_t columns = inner == 1 ? n : inner;
  return {columns == 0 ? 0 : x.numel() / columns, columns, n, inner == 1};
}

int64_t rows_per_chunk(const Layout& layout) {
  constexpr int64_t kElements = 32768, kRows = 128;
  return std::clamp<int64_t>(kElements / std::max<int64_t>(1, layout.columns), 1, kRows);
}

void forward_cpu(torch::Tensor& y, const std::optional<torch::Tensor>& derivative,
                 const torch::Tensor& x, const std::optional<torch::Tensor>& bias,
                 int64_t activation, int64_t dim) {
  const Layout layout = layout_of(x, dim);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "bias_activation_forward", [&] {
    const ActivationRows<scalar_t> rows{x.data_ptr<scalar_t>(),
                                        y.data_ptr<scalar_t>(),
                                        bias ? bias->const_data_ptr<scalar_t>() : nullptr,
                                        layout.columns,
                                        layout.num_bias,
                                        layout.bias_by_column && bias.has_value(),
                                        derivative.has_value(),
                                        static_cast<Activation>(activation),
                                        derivative ? derivative->data_ptr<scalar_t>() : nullptr};
    at::parallel_for(0, layout.rows, rows_per_chunk(layout),
                     [&](int64_t first, int64_t last) { activate_rows(rows, first, last); });
  });
}

// Partial sums of fixed chunks of rows, added in order: the result does not depend on which thread
// runs first, and float32 sums over many rows stay accurate.
void backward_cpu(torch::Tensor& grad, const torch::Tensor& derivative,
                  const std::optional<torch::Tensor>& bias_grad, int64_t dim) {
  const Layout layout = layout_of(grad, dim);
  const int64_t chunk = rows_per_chunk(layout);
  const int64_t num_chunks = (layout.rows + chunk - 1) / chunk;
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "bias_activation_backward", [&] {
    const ActivationGradientRows<scalar_t> rows{
        grad.data_ptr<scalar_t>(), derivative.const_data_ptr<scalar_t>(), layout.columns,
        layout.num_bias, layout.bias_by_column};
    std::vector<scalar_t> partial(bias_grad ? static_cast<size_t>(num_chunks * layout.num_bias) : 0,
                                  scalar_t(0));
    at::parallel_for(0, num_chunks, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        activate_rows_backward(rows, i * chunk, std::min(layout.rows, (i + 1) * chunk),
                               bias_grad ? partial.data() + i * layout.num_bias : nullptr);
      }
    });
    if (!bias_grad) return;
    scalar_t* sum = bias_grad->data_ptr<scalar_t>();
    for (int64_t i = 0; i < num_chunks; ++i) {
      for (int64_t j = 0; j < layout.num_bias; ++j) sum[j] += partial[i * layout.num_bias + j];
    }
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("bias_activation_forward", forward_cpu);
  m.impl("bias_activation_backward", backward_cpu);
}

}  // namespace shoal
