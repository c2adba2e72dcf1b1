#include "sparse/kernels/rows/row_program.h"

#include <algorithm>

#include "runtime/device/cpu_clones.h"

// Vectors are explicit, since the compiler would gather the inputs of a single token, at half the
// speed of loading them one by one.
#pragma GCC optimize("O3", "fp-contract=fast", "no-trapping-math", "no-math-errno")
#pragma GCC optimize("no-tree-vectorize")

// Must come after the pragma.
#include "runtime/kernels/simd.h"

// V groups of 16 tokens
namespace shoal {
namespace {

constexpr int64_t kLanes = Simd<float>::kLanes;
static_assert(kLanes == kGroupTokens);

template <class Real>
using LanesOf = typename Simd<Real>::Lanes;

template <class Real>
SHOAL_INLINE void store(const LanesOf<Real>& lanes, Real* to) {
  __builtin_memcpy(to, &lanes, sizeof lanes);
}

// ---- transposing

/// Eight rows of eight floats.
SHOAL_INLINE void transpose_square(const float* from, int64_t from_stride, float* to,
                                   int64_t to_stride) {
  typedef float Eight __attribute__((vector_size(32)));
  typedef int32_t Index __attribute__((vector_size(32)));
  Eight r[8], pairs[8], quads[8];
  for (int i = 0; i < 8; ++i) __builtin_memcpy(&r[i], from + i * from_stride, sizeof r[i]);
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shuffle(r[i], r[i + 1], Index{0, 8, 1, 9, 4, 12, 5, 13});
    pairs[i + 1] = __builtin_shuffle(r[i], r[i + 1], Index{2, 10, 3, 11, 6, 14, 7, 15});
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; ++j) {
      const Eight a = pairs[i + j], b = pairs[i + j + 2];
      quads[i + 2 * j] = __builtin_shuffle(a, b, Index{0, 1, 8, 9, 4, 5, 12, 13});
      quads[i + 2 * j + 1] = __builtin_shuffle(a, b, Index{2, 3, 10, 11, 6, 7, 14, 15});
    }
  }
  for (int i = 0; i < 4; ++i) {
    const Eight low = __builtin_shuffle(quads[i], quads[i + 4], Index{0, 1, 2, 3, 8, 9, 10, 11});
    const Eight high = __builtin_shuffle(quads[i], quads[i + 4], Index{4, 5, 6, 7, 12, 13, 14, 15});
    __builtin_memcpy(to + i * to_stride, &low, sizeof low);
    __builtin_memcpy(to + (i + 4) * to_stride, &high, sizeof high);
  }
}

SHOAL_INLINE void transpose_square(const double* from, int64_t from_stride, double* to,
                                   int64_t to_stride) {
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) to[j * to_stride + i] = from[i * from_stride + j];
  }
}

/// to[c][r] = from[r][c], with the given distances between rows.
template <class Real>
SHOAL_INLINE void transpose_rows(const Real* from, int64_t from_stride, int64_t rows,
                                 int64_t columns, Real* to, int64_t to_stride) {
  int64_t r = 0;
  for (; r + 8 <= rows; r += 8) {
    int64_t c = 0;
    for (; c + 8 <= columns; c += 8) {
      transpose_square(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
    }
    for (; c < columns; ++c) {
      for (int64_t i = r; i < r + 8; ++i) to[c * to_stride + i] = from[i * from_stride + c];
    }
  }
  for (; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
  }
}

// ---- products

/// sum[v] += weights times their inputs. Several weights side by side have sums of their own, since
/// an addition waits for the one before it.
template <class Real, int V, int kSums>
SHOAL_INLINE void add_weights(const Real* values, const int32_t* input, int64_t count,
                              const Real* tile, LanesOf<Real> (&sum)[kSums * V]) {
  int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (int s = 0; s < kSums; ++s) {
      const Real* x = tile + int64_t{input[i + s]} * (V * kLanes);
      const Real value = values[i + s];
      for (int v = 0; v < V; ++v) sum[s * V + v] += value * Simd<Real>::load(x + v * kLanes).lanes;
    }
  }
  for (; i < count; ++i) {
    const Real* x = tile + int64_t{input[i]} * (V * kLanes);
    for (int v = 0; v < V; ++v) sum[v] += values[i] * Simd<Real>::load(x + v * kLanes).lanes;
  }
}

constexpr int64_t kRowBlock = 16;

template <class Real, int V>
SHOAL_INLINE void multiply_rows_of(const RowProduct<Real>& product, const Real* tile, int64_t first,
                                   int64_t last, const TokenRows<Real>& y) {
  constexpr int kSums = V == 1 ? 4 : (V == 2 ? 2 : 1);
  constexpr int64_t kWidth = V * kLanes;
  const RowProgram& program = product.program;
  alignas(64) Real block[kRowBlock * kWidth];
  for (int64_t begin = first; begin < last; begin += kRowBlock) {
    const int64_t rows = std::min(kRowBlock, last - begin);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t start = program.start[begin + r], end = program.start[begin + r + 1];
      LanesOf<Real> sum[kSums * V] = {};
      if (product.bias != nullptr) {
        for (int v = 0; v < V; ++v) sum[v] += product.bias[begin + r];
      }
      add_weights<Real, V, kSums>(product.values + start, program.input + start, end - start, tile,
                                  sum);
      for (int s = 1; s < kSums; ++s) {
        for (int v = 0; v < V; ++v) sum[v] += sum[s * V + v];
      }
      for (int v = 0; v < V; ++v) store<Real>(sum[v], block + r * kWidth + v * kLanes);
    }
    transpose_rows(block, kWidth, rows, y.tokens, y.data + begin, y.stride);
  }
}

/// Accumulates the gradients of a few weights of one output.
template <class Real, int V, int kWeights>
SHOAL_INLINE void dot_weights(const int32_t* input, const LanesOf<Real>* dy, const Real* tile,
                              Real* gradient) {
  Simd<Real> sums[kWeights];
  for (int w = 0; w < kWeights; ++w) {
    const Real* x = tile + int64_t{input[w]} * (V * kLanes);
    sums[w].lanes = dy[0] * Simd<Real>::load(x).lanes;
    for (int v = 1; v < V; ++v) sums[w].lanes += dy[v] * Simd<Real>::load(x + v * kLanes).lanes;
  }
  if constexpr (kWeights == 8 && sizeof(Real) == 4) {
    float totals[8];
    total_eight(sums, totals);
    for (int w = 0; w < 8; ++w) gradient[w] += totals[w];
  } else {
    for (int w = 0; w < kWeights; ++w) gradient[w] += sums[w].total();
  }
}

template <class Real, int V>
SHOAL_INLINE void add_row_dots_of(const RowDots<Real>& dots, int64_t first, int64_t last,
                                  Real* gradient) {
  const RowProgram& program = dots.program;
  for (int64_t row = first; row < last; ++row) {
    LanesOf<Real> dy[V];
    const Real* from = dots.dy_tile + (row - first) * V * kLanes;
    for (int v = 0; v < V; ++v) dy[v] = Simd<Real>::load(from + v * kLanes).lanes;
    int64_t i = program.start[row];
    const int64_t end = program.start[row + 1];
    const int32_t* input = program.input;
    for (; i + 8 <= end; i += 8) dot_weights<Real, V, 8>(input + i, dy, dots.x_tile, gradient + i);
    for (; i < end; ++i) dot_weights<Real, V, 1>(input + i, dy, dots.x_tile, gradient + i);
  }
}

// ---- one token

template <class Real>
SHOAL_INLINE Real dot_once(const Real* values, const int32_t* input, int64_t count, const Real* x) {
  Real a = 0, b = 0, c = 0, d = 0;
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    a += values[i] * x[input[i]];
    b += values[i + 1] * x[input[i + 1]];
    c += values[i + 2] * x[input[i + 2]];
    d += values[i + 3] * x[input[i + 3]];
  }
  for (; i < count; ++i) a += values[i] * x[input[i]];
  return (a + b) + (c + d);
}

template <class Real>
SHOAL_INLINE void multiply_rows_once_of(const RowProduct<Real>& product, const Real* x,
                                        int64_t first, int64_t last, Real* y) {
  const RowProgram& program = product.program;
  for (int64_t row = first; row < last; ++row) {
    const int64_t start = program.start[row], count = program.start[row + 1] - start;
    const Real sum = dot_once(product.values + start, program.input + start, count, x);
    y[row] = product.bias == nullptr ? sum : product.bias[row] + sum;
  }
}

}  // namespace

template <class Real>
void transpose_tokens(const TokenRows<const Real>& x, int64_t groups, Real* tile) {
  const int64_t width = groups * kLanes;
  transpose_matrix<Real>({x.data, x.stride, x.tokens, x.width, tile, width});
  if (x.tokens == width) return;
  for (int64_t c = 0; c < x.width; ++c) {
    std::fill(tile + c * width + x.tokens, tile + (c + 1) * width, Real(0));
  }
}

// ---- clones, of every number of groups

#define SHOAL_ROW_LOOPS(Real)                                                                  \
  template <>                                                                                  \
  SHOAL_CPU_CLONES void transpose_matrix(const Transposition<Real>& m) {                       \
    transpose_rows(m.from, m.from_stride, m.rows, m.columns, m.to, m.to_stride);               \
  }                                                                                            \
  template <>                                                                                  \
  SHOAL_CPU_CLONES void multiply_rows(const RowProduct<Real>& product, const Real* tile,       \
                                      int64_t first, int64_t last, const TokenRows<Real>& y) { \
    const int64_t groups = groups_of(y.tokens);                                                \
    if (groups == 1) return multiply_rows_of<Real, 1>(product, tile, first, last, y);          \
    if (groups == 2) return multiply_rows_of<Real, 2>(product, tile, first, last, y);          \
    if (groups == 3) return multiply_rows_of<Real, 3>(product, tile, first, last, y);          \
    multiply_rows_of<Real, 4>(product, tile, first, last, y);                                  \
  }                                                                                            \
  template <>                                                                                  \
  SHOAL_CPU_CLONES void add_row_dots(const RowDots<Real>& dots, int64_t first, int64_t last,   \
                                     Real* gradient) {                                         \
    if (dots.groups == 1) return add_row_dots_of<Real, 1>(dots, first, last, gradient);        \
    if (dots.groups == 2) return add_row_dots_of<Real, 2>(dots, first, last, gradient);        \
    if (dots.groups == 3) return add_row_dots_of<Real, 3>(dots, first, last, gradient);        \
    add_row_dots_of<Real, 4>(dots, first, last, gradient);                                     \
  }                                                                                            \
  template <>                                                                                  \
  SHOAL_CPU_CLONES void multiply_rows_once(const RowProduct<Real>& product, const Real* x,     \
                                           int64_t first, int64_t last, Real* y) {             \
    multiply_rows_once_of(product, x, first, last, y);                                         \
  }                                                                                            \
  template void transpose_tokens(const TokenRows<const Real>&, int64_t, Real*);

SHOAL_ROW_LOOPS(float)
SHOAL_ROW_LOOPS(double)
#undef SHOAL_ROW_LOOPS

}  // namespace shoal
