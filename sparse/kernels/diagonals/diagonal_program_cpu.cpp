#include "sparse/kernels/diagonals/diagonal_program.h"

#include <algorithm>

#include "runtime/device/cpu_clones.h"
#include "sparse/kernels/wide_registers.h"

#pragma GCC optimize("O3", "fp-contract=fast", "no-trapping-math", "no-math-errno")

// Must come after the pragma.
#include "runtime/kernels/simd.h"

// D weights of a diagonal, the shorter side  P the longer side  K diagonals  t tokens
namespace shoal {
namespace {

constexpr int64_t kLanes = Simd<float>::kLanes;
static_assert(kLanes == kDiagonalPad);

/// Range of offsets that are multiplied together: what they read of eight tokens stays in the
/// first- level cache while the position advances.
constexpr int64_t kWindow = 512;

/// The first diagonal after `begin` outside its window.
SHOAL_INLINE int64_t end_of_window(const DiagonalProgram& program, int64_t begin) {
  int64_t end = begin;
  while (end < program.count && program.offsets[end] - program.offsets[begin] < kWindow) ++end;
  return end;
}

/// The first diagonal with an offset greater than `offset`.
SHOAL_INLINE int64_t first_above(const DiagonalProgram& program, int64_t offset) {
  return std::upper_bound(program.offsets, program.offsets + program.count, offset) -
         program.offsets;
}

/// Computes sixteen elements of kTokens tokens.
template <class Real, int kTokens>
struct Sums {
  using Lanes = typename Simd<Real>::Lanes;

  Lanes lanes[kTokens];

  SHOAL_INLINE void load(const Real* from, int64_t stride) {
    for (int t = 0; t < kTokens; ++t) lanes[t] = Simd<Real>::load(from + t * stride).lanes;
  }
  SHOAL_INLINE void store(Real* to, int64_t stride) const {
    for (int t = 0; t < kTokens; ++t) __builtin_memcpy(to + t * stride, &lanes[t], sizeof(Lanes));
  }
  SHOAL_INLINE void add(const Real* values, const Real* x, int64_t stride) {
    const Lanes value = Simd<Real>::load(values).lanes;
    for (int t = 0; t < kTokens; ++t) {
      lanes[t] += value * Simd<Real>::load(x + t * stride).lanes;
    }
  }
};

template <class Real>
struct ToShorter {
  const DiagonalLoop& loop;
  const Real* values;
  const DiagonalRows<const Real>& longer;
  const DiagonalRows<Real>& shorter;

  template <int kTokens>
  SHOAL_INLINE void run(int64_t token) const {
    const DiagonalProgram& program = loop.program;
    for (int64_t begin = 0, end; begin < program.count; begin = end) {
      end = end_of_part<kTokens>(program, begin);
      for (int64_t j = loop.first; j < loop.last; j += kLanes) {
        Real* to = shorter.data + token * shorter.stride + j;
        const Real* x = longer.data + token * longer.stride + j;
        const Real* value = values + begin * program.stride + kDiagonalPad + j;
        Sums<Real, kTokens> sums;
        sums.load(to, shorter.stride);
        for (int64_t k = begin; k < end; ++k, value += program.stride) {
          sums.add(value, x + program.offsets[k], longer.stride);
        }
        sums.store(to, shorter.stride);
      }
    }
  }
  /// For a single token, reading the values takes most of the time: a few diagonals at once are
  /// read from beginning to end.
  template <int kTokens>
  static SHOAL_INLINE int64_t end_of_part(const DiagonalProgram& program, int64_t begin) {
    if constexpr (kTokens == 1) return std::min(program.count, begin + 4);
    return end_of_window(program, begin);
  }
};

template <class Real>
struct ToLonger {
  const DiagonalLoop& loop;
  const Real* values;
  const DiagonalRows<const Real>& shorter;
  const DiagonalRows<Real>& longer;

  template <int kTokens>
  SHOAL_INLINE void run(int64_t token) const {
    if constexpr (kTokens == 1) return run_by_diagonals(token);
    const DiagonalProgram& program = loop.program;
    for (int64_t p = loop.first; p < loop.last; p += kLanes) {
      Real* to = longer.data + token * longer.stride + p;
      Sums<Real, kTokens> sums;
      sums.load(to, longer.stride);
      // Diagonals that overlap these elements, before and after wrapping around.
      for (const int64_t place : {p, p + program.longer}) {
        const int64_t end = first_above(program, place + kLanes - 1);
        for (int64_t k = first_above(program, place - program.shorter); k < end; ++k) {
          const int64_t j = place - program.offsets[k];
          sums.add(values + k * program.stride + kDiagonalPad + j,
                   shorter.data + token * shorter.stride + j, shorter.stride);
        }
      }
      sums.store(to, longer.stride);
    }
  }
  /// One token, with values read in order as in ToShorter.
  SHOAL_INLINE void run_by_diagonals(int64_t token) const {
    const DiagonalProgram& program = loop.program;
    const Real* x = shorter.data + token * shorter.stride;
    for (int64_t k = 0; k < program.count; ++k) {
      const Real* value = values + k * program.stride + kDiagonalPad;
      for (const int64_t wrap : {int64_t{0}, program.longer}) {
        const int64_t shift = program.offsets[k] - wrap;
        const int64_t end = std::min(program.shorter, loop.last - shift);
        Real* to = longer.data + token * longer.stride + shift;
        int64_t j = std::max<int64_t>(0, loop.first - shift);
        for (; j + kLanes <= end; j += kLanes) {
          Sums<Real, 1> sums;
          sums.load(to + j, 0);
          sums.add(value + j, x + j, 0);
          sums.store(to + j, 0);
        }
        for (; j < end; ++j) to[j] += value[j] * x[j];
      }
    }
  }
};

template <class Real>
struct Dots {
  const DiagonalLoop& loop;
  const DiagonalRows<const Real>& shorter;
  const DiagonalRows<const Real>& longer;
  Real* gradient;

  template <int kTokens>
  SHOAL_INLINE void run(int64_t token) const {
    using Lanes = typename Simd<Real>::Lanes;
    const DiagonalProgram& program = loop.program;
    for (int64_t begin = 0, end; begin < program.count; begin = end) {
      end = end_of_window(program, begin);
      for (int64_t j = loop.first; j < loop.last; j += kLanes) {
        Lanes own[kTokens];
        for (int t = 0; t < kTokens; ++t) {
          own[t] = Simd<Real>::load(shorter.data + (token + t) * shorter.stride + j).lanes;
        }
        Real* to = gradient + begin * program.stride + kDiagonalPad + j;
        for (int64_t k = begin; k < end; ++k, to += program.stride) {
          const Real* x = longer.data + token * longer.stride + j + program.offsets[k];
          Lanes sum = Simd<Real>::load(to).lanes;
          for (int t = 0; t < kTokens; ++t) {
            sum += own[t] * Simd<Real>::load(x + t * longer.stride).lanes;
          }
          __builtin_memcpy(to, &sum, sizeof sum);
        }
      }
    }
  }
};

/// Calls work for all tokens, as many at a time as fit into registers.
template <int kMost, class Work>
SHOAL_INLINE void run_all(const Work& work) {
  const int64_t tokens = work.loop.tokens;
  int64_t t = 0;
  for (; t + kMost <= tokens; t += kMost) work.template run<kMost>(t);
  if constexpr (kMost > 4) {
    for (; t + 4 <= tokens; t += 4) work.template run<4>(t);
  }
  for (; t < tokens; ++t) work.template run<1>(t);
}

#define SHOAL_DIAGONAL_LOOPS(name, kMost, Real)                                     \
  SHOAL_CPU_CLONES void name(const ToShorter<Real>& work) { run_all<kMost>(work); } \
  SHOAL_CPU_CLONES void name(const ToLonger<Real>& work) { run_all<kMost>(work); }  \
  SHOAL_CPU_CLONES void name(const Dots<Real>& work) { run_all<kMost>(work); }
SHOAL_DIAGONAL_LOOPS(run_by_eight, 8, float)
SHOAL_DIAGONAL_LOOPS(run_by_eight, 8, double)
SHOAL_DIAGONAL_LOOPS(run_by_four, 4, float)
SHOAL_DIAGONAL_LOOPS(run_by_four, 4, double)
#undef SHOAL_DIAGONAL_LOOPS

template <class Work>
void run(const Work& work) {
  if (has_wide_registers()) return run_by_eight(work);
  run_by_four(work);
}

}  // namespace

template <class Real>
void multiply_to_shorter(const DiagonalLoop& loop, const Real* values,
                         const DiagonalRows<const Real>& longer,
                         const DiagonalRows<Real>& shorter) {
  run(ToShorter<Real>{loop, values, longer, shorter});
}
template <class Real>
void multiply_to_longer(const DiagonalLoop& loop, const Real* values,
                        const DiagonalRows<const Real>& shorter, const DiagonalRows<Real>& longer) {
  run(ToLonger<Real>{loop, values, shorter, longer});
}
template <class Real>
void add_diagonal_dots(const DiagonalLoop& loop, const DiagonalRows<const Real>& shorter,
                       const DiagonalRows<const Real>& longer, Real* gradient) {
  run(Dots<Real>{loop, shorter, longer, gradient});
}

#define SHOAL_DIAGONAL_TEMPLATES(Real)                                                           \
  template void multiply_to_shorter(const DiagonalLoop&, const Real*,                            \
                                    const DiagonalRows<const Real>&, const DiagonalRows<Real>&); \
  template void multiply_to_longer(const DiagonalLoop&, const Real*,                             \
                                   const DiagonalRows<const Real>&, const DiagonalRows<Real>&);  \
  template void add_diagonal_dots(const DiagonalLoop&, const DiagonalRows<const Real>&,          \
                                  const DiagonalRows<const Real>&, Real*);
SHOAL_DIAGONAL_TEMPLATES(float)
SHOAL_DIAGONAL_TEMPLATES(double)
#undef SHOAL_DIAGONAL_TEMPLATES

}  // namespace shoal
