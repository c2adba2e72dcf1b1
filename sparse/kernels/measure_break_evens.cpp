#include <ATen/ops/mm.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>

#include "runtime/random/random.h"
#include "sparse/kernels/break_even.h"
#include "sparse/kernels/sparse_layout.h"
#include "sparse/patterns/diagonal.h"

// T tokens  m outputs  n inputs
namespace shoal {
namespace {

constexpr int64_t kSide = 768, kBlock = 32;
constexpr double kMargin = 1.1;

/// Pseudo-random numbers as data.
torch::Tensor numbers(at::IntArrayRef sizes, uint64_t seed) {
  const torch::Tensor result = torch::empty(sizes);
  fill_uniform(result, Stream{.seed = seed, .purpose = Purpose::kSparsePattern});
  return result;
}

/// Time of the fastest of several calls, in seconds.
double seconds_of(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 7; ++i) {
    const auto start = Clock::now();
    call();
    least = std::min(least, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return least;
}

SparseLayoutPtr make_layout(MaskStorage storage, double density) {
  const torch::Tensor on = numbers({kSide}, 1) < density;
  if (storage == MaskStorage::kDiagonals) {
    const torch::Tensor places =
        Diagonals{kSide, kSide}.places(torch::kCPU).index({on}).reshape({-1});
    torch::Tensor mask = torch::zeros({kSide * kSide}, torch::kBool);
    return make_diagonal_layout(mask.index_fill_(0, places, true).view({kSide, kSide}), {});
  }
  if (storage == MaskStorage::kBlocks) {
    constexpr int64_t kBlocks = kSide / kBlock;
    return make_block_layout((numbers({kBlocks, kBlocks}, 2) < density)
                                 .repeat_interleave(kBlock, 0)
                                 .repeat_interleave(kBlock, 1),
                             kBlock, {});
  }
  return make_csr_layout(numbers({kSide, kSide}, 3) < density, {});
}

/// Time of a sparse product over that of a dense one; for many tokens including gradients.
double sparse_over_dense(const SparseLayout& layout, int64_t tokens) {
  const torch::Tensor x = numbers({tokens, kSide}, 4), dy = numbers({tokens, kSide}, 5),
                      weight = numbers({kSide, kSide}, 6), values = layout.pack(weight);
  const bool trains = tokens > BreakEven::kFewTokens;
  const double sparse = seconds_of([&] {
    layout.multiply(x, trains ? layout.pack(weight) : values, {});
    if (!trains) return;
    layout.multiply_transposed(dy, values);
    layout.unpack(layout.value_gradient(x, dy));
  });
  const double dense = seconds_of([&] {
    at::mm(x, weight.t());
    if (!trains) return;
    at::mm(dy, weight);
    at::mm(dy.t(), x);
  });
  return sparse / dense;
}

/// The density at which the ratio, with a margin, first exceeds one.
double break_even(MaskStorage storage, int64_t tokens) {
  double density = 0.0, ratio = 0.0;
  for (const double next : {0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9}) {
    const double next_ratio = kMargin * sparse_over_dense(*make_layout(storage, next), tokens);
    if (next_ratio > 1) return density + (next - density) * (1 - ratio) / (next_ratio - ratio);
    density = next, ratio = next_ratio;
  }
  return density;
}

BreakEven break_even_of(MaskStorage storage) {
  return {break_even(storage, 1), break_even(storage, 32), break_even(storage, 256)};
}

}  // namespace

BreakEvens measure_break_evens() {
  const torch::NoGradGuard no_grad;
  return {break_even_of(MaskStorage::kRows), break_even_of(MaskStorage::kDiagonals),
          break_even_of(MaskStorage::kBlocks)};
}

}  // namespace shoal
