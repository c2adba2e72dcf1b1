#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "runtime/device/cpu_clones.h"
#include "runtime/device/real_types.h"
#include "runtime/kernels/activation.h"

// Plain loops, so that the compiler vectorises them, once for each instruction set. After this
// pragma, inline functions of other headers are no longer inlined: hot code uses builtins.
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

/// [rows, columns]; `bias` and `derivative` are nullptr for none.
template <class Value>
struct ForwardRows {
  const Value* x;
  const Value* bias;
  Value* y;
  Value* derivative;
  int64_t columns;
  Activation activation;
};

template <class Act, bool kKeepDerivative, class Value>
SHOAL_INLINE void forward_rows(const ForwardRows<Value>& rows, int64_t first, int64_t last) {
  for (int64_t r = first; r < last; ++r) {
    const int64_t begin = r * rows.columns;
    const Value* __restrict__ x = rows.x + begin;
    Value* __restrict__ y = rows.y + begin;
    Value* __restrict__ derivative = kKeepDerivative ? rows.derivative + begin : nullptr;
    const auto put_at = [&](int64_t c, Sum<Value> value) __attribute__((always_inline)) {
      const Activated<Sum<Value>> result = Act::at(value);
      put(y[c], result.value);
      if constexpr (kKeepDerivative) put(derivative[c], result.derivative);
    };
    if (rows.bias != nullptr) {
      const Value* __restrict__ bias = rows.bias;
      for (int64_t c = 0; c < rows.columns; ++c) put_at(c, real_of(x[c]) + real_of(bias[c]));
    } else {
      for (int64_t c = 0; c < rows.columns; ++c) put_at(c, real_of(x[c]) + Sum<Value>(0));
    }
  }
}

template <class Value>
SHOAL_INLINE void forward_any(const ForwardRows<Value>& rows, int64_t first, int64_t last) {
  activation_functions::with_activation(
      rows.activation, [&]<class Act>(Act) __attribute__((always_inline)) {
        if (rows.derivative == nullptr) {
          forward_rows<Act, false>(rows, first, last);
        } else {
          forward_rows<Act, true>(rows, first, last);
        }
      });
}

SHOAL_CPU_CLONES void forward(const ForwardRows<float>& rows, int64_t first, int64_t last) {
  forward_any(rows, first, last);
}
void forward(const ForwardRows<double>& rows, int64_t first, int64_t last) {
  forward_any(rows, first, last);
}
SHOAL_CPU_CLONES void forward(const ForwardRows<Bfloat16>& rows, int64_t first, int64_t last) {
  forward_any(rows, first, last);
}

/// x_grad = grad * derivative on [rows, columns].
template <class Value>
struct BackwardRows {
  const Value* grad;
  const Value* derivative;
  Value* x_grad;
  int64_t columns;
};

/// Adds the products to `sum` by column, unless it is nullptr.
template <class Value>
SHOAL_CPU_CLONES void backward(const BackwardRows<Value>& rows, int64_t first, int64_t last,
                               Sum<Value>* __restrict__ sum) {
  for (int64_t r = first; r < last; ++r) {
    const Value* __restrict__ grad = rows.grad + r * rows.columns;
    const Value* __restrict__ derivative = rows.derivative + r * rows.columns;
    Value* __restrict__ x_grad = rows.x_grad + r * rows.columns;
    if (sum == nullptr) {
      for (int64_t c = 0; c < rows.columns; ++c) {
        put(x_grad[c], real_of(grad[c]) * real_of(derivative[c]));
      }
    } else {
      for (int64_t c = 0; c < rows.columns; ++c) {
        const Sum<Value> product = real_of(grad[c]) * real_of(derivative[c]);
        put(x_grad[c], product);
        sum[c] += product;
      }
    }
  }
}

int64_t num_rows(const torch::Tensor& x) { return x.size(-1) == 0 ? 0 : x.numel() / x.size(-1); }

int64_t rows_per_chunk(int64_t columns) {
  constexpr int64_t kElements = 32768, kRows = 128;
  return std::clamp<int64_t>(kElements / std::max<int64_t>(1, columns), 1, kRows);
}

void forward_cpu(torch::Tensor& y, const std::optional<torch::Tensor>& derivative,
                 const torch::Tensor& x, const std::optional<torch::Tensor>& bias,
                 int64_t activation) {
  for_real_type(x, "bias_activation", [&]<class Value, class Sum>(Value, Sum) {
    const ForwardRows<Value> rows{
        const_data<Value>(x), const_data_or_null<Value>(bias),
        data<Value>(y),       derivative ? data<Value>(*derivative) : nullptr,
        x.size(-1),           static_cast<Activation>(activation)};
    at::parallel_for(0, num_rows(x), rows_per_chunk(rows.columns),
                     [&](int64_t first, int64_t last) { forward(rows, first, last); });
  });
}

// Partial sums of fixed chunks of rows, added in order: the result does not depend on which thread
// runs first, and float32 sums over many rows stay accurate.
std::tuple<torch::Tensor, torch::Tensor> backward_cpu(const torch::Tensor& grad,
                                                      const torch::Tensor& derivative,
                                                      bool has_bias) {
  const int64_t rows = num_rows(grad), columns = grad.size(-1), chunk = rows_per_chunk(columns);
  const int64_t num_chunks = (rows + chunk - 1) / chunk;
  const torch::Tensor x_grad = torch::empty_like(grad);
  const torch::Tensor bias_grad =
      has_bias ? torch::empty({columns}, grad.options()) : torch::Tensor();
  for_real_type(grad, "bias_activation", [&]<class Value, class Sum>(Value, Sum) {
    const BackwardRows<Value> all{const_data<Value>(grad), const_data<Value>(derivative),
                                  data<Value>(x_grad), columns};
    std::vector<Sum> partial(has_bias ? static_cast<size_t>(num_chunks * columns) : 0, Sum(0));
    at::parallel_for(0, num_chunks, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        backward(all, i * chunk, std::min(rows, (i + 1) * chunk),
                 has_bias ? partial.data() + i * columns : nullptr);
      }
    });
    if (!has_bias) return;
    Value* sum = data<Value>(bias_grad);
    for (int64_t c = 0; c < columns; ++c) {
      Sum total = 0;
      for (int64_t i = 0; i < num_chunks; ++i) total += partial[i * columns + c];
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
