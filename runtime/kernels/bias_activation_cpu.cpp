#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "runtime/device/cpu_clones.h"
#include "runtime/device/real_types.h"
#include "runtime/kernels/activation_rows.h"
#include "runtime/kernels/bias_activation.h"

// The loops below are plain so that the compiler vectorises them, once for each instruction set.
// After this pragma, inline functions of other headers are no longer inlined: hot code uses
// builtins.
#pragma GCC optimize("O3", "fp-contract=fast", "no-trapping-math", "no-math-errno")
#include "runtime/kernels/activation_functions.h"

namespace shoal {
namespace {

using activation_functions::Activated;
using vector_math::put;
using vector_math::real_of;

/// What values of a type are computed in.
template <class Value>
using Sum = vector_math::Real<Value>;

enum class Derivative { kNone, kInPlace, kApart };

template <class Act, Derivative kDerivative, class Value>
SHOAL_INLINE void forward_rows(const ActivationRows<Value>& rows, int64_t first, int64_t last) {
  constexpr bool kApart = kDerivative == Derivative::kApart;
  for (int64_t r = first; r < last; ++r) {
    const int64_t begin = r * rows.columns;
    Value* __restrict__ x = rows.x + begin;
    Value* __restrict__ y = rows.y + begin;
    Value* __restrict__ derivative = kApart ? rows.derivative + begin : nullptr;
    const auto put_at = [&](int64_t c, Sum<Value> value) __attribute__((always_inline)) {
      const Activated<Sum<Value>> result = Act::at(value);
      put(y[c], result.value);
      if constexpr (kDerivative == Derivative::kInPlace) put(x[c], result.derivative);
      if constexpr (kApart) put(derivative[c], result.derivative);
    };
    if (rows.bias_by_column) {
      const Value* __restrict__ bias = rows.bias;
      for (int64_t c = 0; c < rows.columns; ++c) put_at(c, real_of(x[c]) + real_of(bias[c]));
    } else {
      const Sum<Value> bias =
          rows.bias == nullptr ? Sum<Value>(0) : real_of(rows.bias[r % rows.num_bias]);
      for (int64_t c = 0; c < rows.columns; ++c) put_at(c, real_of(x[c]) + bias);
    }
  }
}

template <class Act, class Value>
SHOAL_INLINE void forward_as(const ActivationRows<Value>& rows, int64_t first, int64_t last) {
  if (!rows.keep_derivative) {
    forward_rows<Act, Derivative::kNone>(rows, first, last);
  } else if (rows.derivative == nullptr || rows.derivative == rows.x) {
    forward_rows<Act, Derivative::kInPlace>(rows, first, last);
  } else {
    forward_rows<Act, Derivative::kApart>(rows, first, last);
  }
}

template <class Value>
SHOAL_INLINE void forward_any(const ActivationRows<Value>& rows, int64_t first, int64_t last) {
  activation_functions::with_activation(
      rows.activation, [&]<class Act>(Act)
                           __attribute__((always_inline)) { forward_as<Act>(rows, first, last); });
}

}  // namespace

SHOAL_CPU_CLONES void activate_rows(const ActivationRows<float>& rows, int64_t first,
                                    int64_t last) {
  forward_any(rows, first, last);
}
void activate_rows(const ActivationRows<double>& rows, int64_t first, int64_t last) {
  forward_any(rows, first, last);
}
SHOAL_CPU_CLONES void activate_rows(const ActivationRows<Bfloat16>& rows, int64_t first,
                                    int64_t last) {
  forward_any(rows, first, last);
}

namespace {

template <class Value>
SHOAL_INLINE void multiply_row(Value* __restrict__ grad, const Value* __restrict__ derivative,
                               int64_t columns) {
  for (int64_t c = 0; c < columns; ++c) put(grad[c], real_of(grad[c]) * real_of(derivative[c]));
}

template <class Value>
SHOAL_INLINE void multiply_add_row(Value* __restrict__ grad, const Value* __restrict__ derivative,
                                   Sum<Value>* __restrict__ sum, int64_t columns) {
  for (int64_t c = 0; c < columns; ++c) {
    const Sum<Value> product = real_of(grad[c]) * real_of(derivative[c]);
    put(grad[c], product);
    sum[c] += product;
  }
}

template <class Value>
SHOAL_INLINE Sum<Value> multiply_sum_row(Value* __restrict__ grad,
                                         const Value* __restrict__ derivative, int64_t columns) {
  constexpr int64_t kLanes = 16;
  Sum<Value> lanes[kLanes] = {};
  int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const Sum<Value> product = real_of(grad[c + lane]) * real_of(derivative[c + lane]);
      put(grad[c + lane], product);
      lanes[lane] += product;
    }
  }
  Sum<Value> sum = 0;
  for (; c < columns; ++c) {
    const Sum<Value> product = real_of(grad[c]) * real_of(derivative[c]);
    put(grad[c], product);
    sum += product;
  }
  for (const Sum<Value> lane : lanes) sum += lane;
  return sum;
}

template <class Value>
SHOAL_INLINE void backward_any(const ActivationGradientRows<Value>& rows, int64_t first,
                               int64_t last, Sum<Value>* sum) {
  for (int64_t r = first; r < last; ++r) {
    Value* grad = rows.grad + r * rows.columns;
    const Value* derivative = rows.derivative + r * rows.columns;
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

SHOAL_CPU_CLONES void activate_rows_backward(const ActivationGradientRows<Bfloat16>& rows,
                                             int64_t first, int64_t last, float* sum) {
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
  for_real_type(x, "bias_activation", [&]<class Value, class Sum>(Value, Sum) {
    const ActivationRows<Value> rows{data<Value>(x),
                                     data<Value>(y),
                                     bias ? const_data<Value>(*bias) : nullptr,
                                     layout.columns,
                                     layout.num_bias,
                                     layout.bias_by_column && bias.has_value(),
                                     derivative.has_value(),
                                     static_cast<Activation>(activation),
                                     derivative ? data<Value>(*derivative) : nullptr};
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
  for_real_type(grad, "bias_activation", [&]<class Value, class Sum>(Value, Sum) {
    const ActivationGradientRows<Value> rows{data<Value>(grad), const_data<Value>(derivative),
                                             layout.columns, layout.num_bias,
                                             layout.bias_by_column};
    std::vector<Sum> partial(bias_grad ? static_cast<size_t>(num_chunks * layout.num_bias) : 0,
                             Sum(0));
    at::parallel_for(0, num_chunks, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        activate_rows_backward(rows, i * chunk, std::min(layout.rows, (i + 1) * chunk),
                               bias_grad ? partial.data() + i * layout.num_bias : nullptr);
      }
    });
    if (!bias_grad) return;
    Value* sum = data<Value>(*bias_grad);
    for (int64_t j = 0; j < layout.num_bias; ++j) {
      Sum total = real_of(sum[j]);
      for (int64_t i = 0; i < num_chunks; ++i) total += partial[i * layout.num_bias + j];
      put(sum[j], total);
    }
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("bias_activation_forward", forward_cpu);
  m.impl("bias_activation_backward", backward_cpu);
}

}  // namespace shoal
