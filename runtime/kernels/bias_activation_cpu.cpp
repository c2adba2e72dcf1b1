#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "runtime/device/cpu_clones.h"
#include "runtime/device/real_types.h"
#include "runtime/kernels/activation.h"

// The loops below are plain so that the compiler vectorises them, once for each instruction set.
// After this pragma, inline functions of other headers are no longer inlined: hot code uses
// builtins.
#pragma GCC optimize("O3", "fp-contract=fast", "no-trapping-math", "no-math-errno")
#include "runtime/kernels/activation_functions.h"

namespace shoal {
namespace {

using activation_functions::Activated;
using vector_math::put;
using vector_math::Real;
using vector_math::real_of;

/// y = act(x + bias) on rows of `columns` elements, with one element of the bias for each column.
template <class Value>
struct ForwardRows {
  const Value* x;
  const Value* bias;  ///< null: none
  Value* y;
  Value* derivative;  ///< null: not kept
  int64_t columns;
};

template <class Act, bool kKeepDerivative, class Value>
SHOAL_INLINE void forward_rows(const ForwardRows<Value>& rows, int64_t first, int64_t last) {
  for (int64_t r = first; r < last; ++r) {
    const int64_t begin = r * rows.columns;
    const Value* __restrict__ x = rows.x + begin;
    Value* __restrict__ y = rows.y + begin;
    Value* __restrict__ derivative = kKeepDerivative ? rows.derivative + begin : nullptr;
    const auto put_at = [&](int64_t c, Real<Value> value) __attribute__((always_inline)) {
      const Activated<Real<Value>> result = Act::at(value);
      put(y[c], result.value);
      if constexpr (kKeepDerivative) put(derivative[c], result.derivative);
    };
    if (const Value* __restrict__ bias = rows.bias) {
      for (int64_t c = 0; c < rows.columns; ++c) put_at(c, real_of(x[c]) + real_of(bias[c]));
    } else {
      for (int64_t c = 0; c < rows.columns; ++c) put_at(c, real_of(x[c]));
    }
  }
}

template <class Value>
SHOAL_INLINE void forward_any(const ForwardRows<Value>& rows, Activation activation, int64_t first,
                              int64_t last) {
  const auto run = [&]<class Act>(Act) __attribute__((always_inline)) {
    if (rows.derivative == nullptr) {
      forward_rows<Act, false>(rows, first, last);
    } else {
      forward_rows<Act, true>(rows, first, last);
    }
  };
  activation_functions::with_activation(activation, run);
}

SHOAL_CPU_CLONES void run_forward(const ForwardRows<float>& rows, Activation activation,
                                  int64_t first, int64_t last) {
  forward_any(rows, activation, first, last);
}
void run_forward(const ForwardRows<double>& rows, Activation activation, int64_t first,
                 int64_t last) {
  forward_any(rows, activation, first, last);
}
SHOAL_CPU_CLONES void run_forward(const ForwardRows<Bfloat16>& rows, Activation activation,
                                  int64_t first, int64_t last) {
  forward_any(rows, activation, first, last);
}

/// x_grad = grad * derivative.
template <class Value>
struct BackwardRows {
  const Value* grad;
  const Value* derivative;
  Value* x_grad;
  int64_t columns;
};

/// Adds the products of rows [first, last) to `sum`, by column.
template <class Value>
SHOAL_INLINE void backward_any(const BackwardRows<Value>& rows, int64_t first, int64_t last,
                               Real<Value>* __restrict__ sum) {
  for (int64_t r = first; r < last; ++r) {
    const int64_t begin = r * rows.columns;
    const Value* __restrict__ grad = rows.grad + begin;
    const Value* __restrict__ derivative = rows.derivative + begin;
    Value* __restrict__ x_grad = rows.x_grad + begin;
    for (int64_t c = 0; c < rows.columns; ++c) {
      const Real<Value> product = real_of(grad[c]) * real_of(derivative[c]);
      put(x_grad[c], product);
      sum[c] += product;
    }
  }
}

SHOAL_CPU_CLONES void run_backward(const BackwardRows<float>& rows, int64_t first, int64_t last,
                                   float* sum) {
  backward_any(rows, first, last, sum);
}
SHOAL_CPU_CLONES void run_backward(const BackwardRows<double>& rows, int64_t first, int64_t last,
                                   double* sum) {
  backward_any(rows, first, last, sum);
}
SHOAL_CPU_CLONES void run_backward(const BackwardRows<Bfloat16>& rows, int64_t first, int64_t last,
                                   float* sum) {
  backward_any(rows, first, last, sum);
}

struct Layout {
  int64_t rows, columns, rows_per_chunk;
};

Layout layout_of(const torch::Tensor& x) {
  constexpr int64_t kElements = 32768, kRows = 128;
  const int64_t columns = std::max<int64_t>(1, x.size(-1));
  return {x.numel() / columns, columns, std::clamp<int64_t>(kElements / columns, 1, kRows)};
}

void forward_cpu(torch::Tensor& y, const std::optional<torch::Tensor>& derivative,
                 const torch::Tensor& x, const std::optional<torch::Tensor>& bias,
                 int64_t activation) {
  const Layout layout = layout_of(x);
  for_real_type(x, "bias_activation", [&]<class Value, class Sum>(Value, Sum) {
    const ForwardRows<Value> rows{const_data<Value>(x), data_or_null<Value>(bias), data<Value>(y),
                                  derivative ? data<Value>(*derivative) : nullptr, layout.columns};
    at::parallel_for(0, layout.rows, layout.rows_per_chunk, [&](int64_t first, int64_t last) {
      run_forward(rows, static_cast<Activation>(activation), first, last);
    });
  });
}

// Partial sums of fixed chunks of rows, added in order: the result does not depend on which thread
// runs first, and float32 sums over many rows stay accurate.
std::tuple<torch::Tensor, torch::Tensor> backward_cpu(const torch::Tensor& grad,
                                                      const torch::Tensor& derivative) {
  const Layout layout = layout_of(grad);
  const int64_t num_chunks = (layout.rows + layout.rows_per_chunk - 1) / layout.rows_per_chunk;
  const torch::Tensor x_grad = torch::empty_like(grad);
  const torch::Tensor bias_grad = torch::empty({grad.size(-1)}, grad.options());
  for_real_type(grad, "bias_activation", [&]<class Value, class Sum>(Value, Sum) {
    const BackwardRows<Value> rows{const_data<Value>(grad), const_data<Value>(derivative),
                                   data<Value>(x_grad), layout.columns};
    std::vector<Sum> partial(static_cast<size_t>(num_chunks * layout.columns), Sum(0));
    at::parallel_for(0, num_chunks, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t row = i * layout.rows_per_chunk;
        run_backward(rows, row, std::min(layout.rows, row + layout.rows_per_chunk),
                     partial.data() + i * layout.columns);
      }
    });
    Value* sum = data<Value>(bias_grad);
    for (int64_t c = 0; c < bias_grad.numel(); ++c) {
      Sum total = 0;
      for (int64_t i = 0; i < num_chunks; ++i) total += partial[i * layout.columns + c];
      put(sum[c], total);
    }
  });
  return {x_grad, bias_grad};
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("bias_activation_forward", forward_cpu);
  m.impl("bias_activation_backward", backward_cpu);
}

}  // namespace shoal
