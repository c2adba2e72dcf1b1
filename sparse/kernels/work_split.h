#pragma once

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>

// Helpers that split products with sparse matrices on CPUs into pieces for threads.
namespace shoal {

struct IndexRange {
  int64_t begin, end;
};

/// Range of piece i when [0, total) is cut into `pieces`, each beginning at a multiple of `unit`.
inline IndexRange piece_of(int64_t total, int64_t pieces, int64_t i, int64_t unit) {
  const int64_t units = (total + unit - 1) / unit;
  return {std::min(total, units * i / pieces * unit),
          std::min(total, units * (i + 1) / pieces * unit)};
}

inline int64_t divide_up(int64_t total, int64_t part) { return (total + part - 1) / part; }

/// Work is cut into parts x ranges pieces: `parts` of the tokens, by ranges of a matrix's outputs.
/// Returns the number of ranges that gives each thread a piece, or less if ranges would have less
/// than `least` outputs. Results do not depend on this number.
inline int64_t ranges_beside(int64_t parts, int64_t outputs, int64_t least) {
  const int64_t wanted = divide_up(at::get_num_threads(), std::max<int64_t>(1, parts));
  return std::clamp<int64_t>(outputs / least, 1, wanted);
}

/// Number of parts to cut the tokens into, with a partial sum each, for the gradient of the stored
/// weights. Depends on the number of tokens only, since the order of a sum affects its bits.
inline int64_t gradient_parts(int64_t tokens) {
  constexpr int64_t kPartTokens = 2048, kMostParts = 8;
  return std::clamp<int64_t>(tokens / kPartTokens, 1, kMostParts);
}

/// Sums over dimension 0 in order (LibTorch's order may depend on the threads). Overwrites `sums`.
inline torch::Tensor sum_of_parts(const torch::Tensor& sums) {
  const torch::Tensor total = sums[0];
  for (int64_t part = 1; part < sums.size(0); ++part) total.add_(sums[part]);
  return total;
}

}  // namespace shoal
