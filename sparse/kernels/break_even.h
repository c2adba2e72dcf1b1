#pragma once

#include <cstdint>

#include "sparse/patterns/pattern.h"

namespace shoal {

/// Densities below which a sparse kernel is faster than the dense product, by number of tokens.
struct BreakEven {
  double one = 0.0;   ///< 1 token
  double few = 0.0;   ///< 2 to kFewTokens tokens
  double many = 0.0;  ///< more than kFewTokens

  static constexpr int64_t kFewTokens = 64;

  double at(int64_t tokens) const { return tokens <= 1 ? one : tokens <= kFewTokens ? few : many; }
  bool is_faster(double density, int64_t tokens) const { return density < at(tokens); }
};

/// Break-even densities of all kernels. Matrices with a side below kLeastSide use dense products.
/// Defaults are from forward passes for 1 token, from forward and backward passes for more tokens.
struct BreakEvens {
  // Conservative against benchmarks/sparse_linear_bench on an AMD EPYC with AVX-512, one thread.
  BreakEven rows{0.3, 0.1, 0.25};
  BreakEven diagonals{0.4, 0.08, 0.25};
  BreakEven blocks{0.5, 0.25, 0.5};

  static constexpr int64_t kLeastSide = 64;

  BreakEven of(MaskStorage storage) const {
    switch (storage) {
      case MaskStorage::kRows:
        return rows;
      case MaskStorage::kDiagonals:
        return diagonals;
      case MaskStorage::kBlocks:
        return blocks;
      case MaskStorage::kNone:
        break;
    }
    return {};
  }
  /// Returns a copy with `one` set to 0, for training, which never multiplies 1 token. Otherwise a
  /// layer whose kernel is faster only for 1 token would give up fused dense products for nothing.
  BreakEvens for_training() const {
    BreakEvens changed = *this;
    changed.rows.one = changed.diagonals.one = changed.blocks.one = 0.0;
    return changed;
  }
};

/// Measures break-even densities, at most 0.9, on this machine with the current number of threads,
/// in about ten seconds. Layers have 768 x 768 float32 weights; a kernel is faster if 1.1 times its
/// time is below the dense time. `one` and `few` time forward passes, `many` forward and backward.
BreakEvens measure_break_evens();

}  // namespace shoal
