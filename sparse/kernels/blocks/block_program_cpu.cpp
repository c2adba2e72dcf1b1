#include "sparse/kernels/blocks/block_program.h"

#include <algorithm>

#include "runtime/device/cpu_clones.h"
#include "sparse/kernels/wide_registers.h"

#pragma GCC optimize("O3", "fp-contract=fast", "no-trapping-math", "no-math-errno")

// Must come after the pragma.
#include "runtime/kernels/simd.h"

// V vectors of 16 outputs  b side of a block
namespace shoal {
namespace {

constexpr int64_t kLanes = Simd<float>::kLanes;

/// Number of tokens that share the weights while these are in the first-level caches.
constexpr int64_t kTileTokens = 64;

/// Maps an input of the program to a column of x.
struct SamePlace {
  SHOAL_INLINE int64_t operator()(int64_t i) const { return i; }
};
struct OtherPlace {
  const int32_t* place;
  SHOAL_INLINE int64_t operator()(int64_t i) const { return place[i]; }
};

template <class Real>
SHOAL_INLINE void put(const typename Simd<Real>::Lanes& lanes, const int32_t* place, Real* y) {
  if (place == nullptr) {
    __builtin_memcpy(y, &lanes, sizeof lanes);
    return;
  }
  for (int64_t i = 0; i < kLanes; ++i) y[place[i]] = lanes[i];
}

/// Computes kTokens tokens of y from (token, output) on, V vectors of outputs of block row `row`.
template <class Real, int kTokens, int V, class Place>
SHOAL_INLINE void multiply_part(const BlockProduct<Real>& product, const Place& place,
                                const TokenRows<const Real>& x, const TokenRows<Real>& y,
                                int64_t row, int64_t part, int64_t token) {
  using Lanes = typename Simd<Real>::Lanes;
  const BlockProgram& program = product.program;
  const int64_t size = program.size;
  Lanes sum[kTokens * V] = {};
  const Real* from = x.data + token * x.stride;
  for (int64_t b = program.start[row]; b < program.start[row + 1]; ++b) {
    const Real* values = product.values + b * size * size + part;
    const int64_t column = program.block_column[b] * size;
    for (int64_t c = 0; c < size; ++c, values += size) {
      Lanes w[V];
      for (int v = 0; v < V; ++v) w[v] = Simd<Real>::load(values + v * kLanes).lanes;
      const int64_t at = place(column + c);
      for (int t = 0; t < kTokens; ++t) {
        const Real input = from[t * x.stride + at];
        for (int v = 0; v < V; ++v) sum[t * V + v] += input * w[v];
      }
    }
  }
  for (int v = 0; v < V; ++v) {
    const int64_t output = row * size + part + v * kLanes;
    const int32_t* to = program.output_at == nullptr ? nullptr : program.output_at + output;
    Lanes bias = {};
    if (product.bias != nullptr) {
      for (int64_t i = 0; i < kLanes; ++i) {
        bias[i] = product.bias[to == nullptr ? output + i : to[i]];
      }
    }
    for (int t = 0; t < kTokens; ++t) {
      put<Real>(sum[t * V + v] + bias, to, y.data + (token + t) * y.stride + (to ? 0 : output));
    }
  }
}

/// Computes all tokens of a tile, kTokens at a time.
template <class Real, int kTokens, int V, class Place>
SHOAL_INLINE void multiply_tile(const BlockProduct<Real>& product, const Place& place,
                                const TokenRows<const Real>& x, const TokenRows<Real>& y) {
  const BlockProgram& program = product.program;
  for (int64_t row = product.first; row < product.last; ++row) {
    for (int64_t part = 0; part < program.size; part += V * kLanes) {
      int64_t t = 0;
      for (; t + kTokens <= x.tokens; t += kTokens) {
        multiply_part<Real, kTokens, V>(product, place, x, y, row, part, t);
      }
      if (kTokens > 4 && t + 4 <= x.tokens) {
        multiply_part<Real, 4, V>(product, place, x, y, row, part, t);
        t += 4;
      }
      for (; t < x.tokens; ++t) multiply_part<Real, 1, V>(product, place, x, y, row, part, t);
    }
  }
}

template <class Real, int kTokens, int V>
SHOAL_INLINE void multiply_tiles(const BlockProduct<Real>& product, const TokenRows<const Real>& x,
                                 const TokenRows<Real>& y) {
  for (int64_t t = 0; t < x.tokens; t += kTileTokens) {
    const int64_t tokens = std::min(kTileTokens, x.tokens - t);
    const TokenRows<const Real> from{x.data + t * x.stride, x.stride, x.width, tokens};
    const TokenRows<Real> to{y.data + t * y.stride, y.stride, y.width, tokens};
    if (product.program.input_at == nullptr) {
      multiply_tile<Real, kTokens, V>(product, SamePlace{}, from, to);
    } else {
      multiply_tile<Real, kTokens, V>(product, OtherPlace{product.program.input_at}, from, to);
    }
  }
}

/// Gradient of kInputs inputs of a block from c on, V vectors of its outputs.
template <class Real, int kInputs, int V, class Place>
SHOAL_INLINE void dot_part(const BlockDots<Real>& dots, const Place& place, int64_t input,
                           int64_t output, Real* gradient) {
  using Lanes = typename Simd<Real>::Lanes;
  Lanes sum[kInputs * V] = {};
  int64_t at[kInputs];
  for (int c = 0; c < kInputs; ++c) at[c] = place(input + c);
  const Real *x = dots.x.data, *dy = dots.dy.data + output;
  for (int64_t t = 0; t < dots.x.tokens; ++t, x += dots.x.stride, dy += dots.dy.stride) {
    Lanes d[V];
    for (int v = 0; v < V; ++v) d[v] = Simd<Real>::load(dy + v * kLanes).lanes;
    for (int c = 0; c < kInputs; ++c) {
      for (int v = 0; v < V; ++v) sum[c * V + v] += x[at[c]] * d[v];
    }
  }
  for (int c = 0; c < kInputs; ++c) {
    for (int v = 0; v < V; ++v) {
      Real* to = gradient + c * dots.program.size + v * kLanes;
      const Lanes total = Simd<Real>::load(to).lanes + sum[c * V + v];
      __builtin_memcpy(to, &total, sizeof total);
    }
  }
}

template <class Real, int kInputs, int V, class Place>
SHOAL_INLINE void dot_blocks(const BlockDots<Real>& dots, const Place& place, int64_t first,
                             int64_t last, Real* gradient) {
  const BlockProgram& program = dots.program;
  const int64_t size = program.size;
  for (int64_t row = first; row < last; ++row) {
    for (int64_t b = program.start[row]; b < program.start[row + 1]; ++b) {
      const int64_t column = program.block_column[b] * size;
      for (int64_t part = 0; part < size; part += V * kLanes) {
        for (int64_t c = 0; c < size; c += kInputs) {
          dot_part<Real, kInputs, V>(dots, place, column + c, row * size + part,
                                     gradient + (b * size + c) * size + part);
        }
      }
    }
  }
}

template <class Real, int kInputs, int V>
SHOAL_INLINE void dot_rows(const BlockDots<Real>& dots, int64_t first, int64_t last,
                           Real* gradient) {
  if (dots.program.input_at == nullptr) {
    dot_blocks<Real, kInputs, V>(dots, SamePlace{}, first, last, gradient);
  } else {
    dot_blocks<Real, kInputs, V>(dots, OtherPlace{dots.program.input_at}, first, last, gradient);
  }
}

/// True if blocks consist of whole pairs of vectors.
bool has_pairs(const BlockProgram& program) { return program.size % (2 * kLanes) == 0; }

/// Names tell the sums in registers: tokens by output vectors; in gradients inputs by outputs.
#define SHOAL_BLOCK_LOOPS(Real, name, tokens, inputs, vectors)                               \
  SHOAL_CPU_CLONES void multiply_##name(const BlockProduct<Real>& product,                   \
                                        const TokenRows<const Real>& x,                      \
                                        const TokenRows<Real>& y) {                          \
    multiply_tiles<Real, tokens, vectors>(product, x, y);                                    \
  }                                                                                          \
  SHOAL_CPU_CLONES void dot_##name(const BlockDots<Real>& dots, int64_t first, int64_t last, \
                                   Real* gradient) {                                         \
    dot_rows<Real, inputs, vectors>(dots, first, last, gradient);                            \
  }

SHOAL_BLOCK_LOOPS(float, pairs, 8, 8, 2)
SHOAL_BLOCK_LOOPS(float, singles, 8, 16, 1)
SHOAL_BLOCK_LOOPS(float, narrow, 4, 4, 1)
SHOAL_BLOCK_LOOPS(double, narrow, 4, 4, 1)
#undef SHOAL_BLOCK_LOOPS

}  // namespace

template <>
void multiply_blocks(const BlockProduct<float>& product, const TokenRows<const float>& x,
                     const TokenRows<float>& y) {
  if (!has_wide_registers()) return multiply_narrow(product, x, y);
  if (has_pairs(product.program)) return multiply_pairs(product, x, y);
  multiply_singles(product, x, y);
}
template <>
void multiply_blocks(const BlockProduct<double>& product, const TokenRows<const double>& x,
                     const TokenRows<double>& y) {
  multiply_narrow(product, x, y);
}
template <>
void add_block_dots(const BlockDots<float>& dots, int64_t first, int64_t last, float* gradient) {
  if (!has_wide_registers()) return dot_narrow(dots, first, last, gradient);
  if (has_pairs(dots.program)) return dot_pairs(dots, first, last, gradient);
  dot_singles(dots, first, last, gradient);
}
template <>
void add_block_dots(const BlockDots<double>& dots, int64_t first, int64_t last, double* gradient) {
  dot_narrow(dots, first, last, gradient);
}

}  // namespace shoal
