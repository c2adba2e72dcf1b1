#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <vector>

#include "models/kernels/attention_tiles.h"
#include "runtime/base/integers.h"
#include "runtime/device/real_types.h"
#include "runtime/kernels/bfloat16_rows.h"

/// Shared parts of CPU attention kernels: scratch memory, conversion of key and value rows, and the
/// distribution of tiles over threads.
namespace shoal::attention_tiles {

/// Scratch memory aligned to cache lines; it grows on demand and never shrinks.
template <class Real>
class TileMemory {
 public:
  Real* get(int64_t count) {
    const auto lines = static_cast<size_t>((count + kLanes<Real> - 1) / kLanes<Real>);
    if (lines_.size() < lines) lines_.resize(lines);
    return lines_.empty() ? nullptr : lines_[0].value;
  }

 private:
  struct alignas(64) Line {
    Real value[kLanes<Real>];
  };
  std::vector<Line> lines_;
};

/// Calls body(index, scratch) in parallel for each of `costs`, most costly first, on free threads.
template <class Scratch, class Body>
void for_each_by_cost(const std::vector<int64_t>& costs, const Body& body) {
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t i, size_t j) { return costs[i] > costs[j]; });
  std::atomic<size_t> next{0};
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), std::ssize(order));
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    Scratch scratch;
    for (size_t i = next++; i < order.size(); i = next++) body(order[i], scratch);
  });
}

/// Consecutive rows of the keys or values of one sequence or image.
template <class Value>
struct RowsAt {
  const Value* data;
  int64_t stride, count, width;  ///< from row to row, number of rows, elements of a row
};

/// Rows converted to the type that kernels compute in.
template <class Real>
struct RealRows {
  const Real* data;
  int64_t stride;
};

/// Returns rows of keys or values in compute precision, in place if possible. `width` is at least
/// the rows' own; zeros fill the rest.
template <class Value>
RealRows<vector_math::Real<Value>> rows_of_width(const RowsAt<Value>& from, int64_t width,
                                                 TileMemory<vector_math::Real<Value>>& to) {
  using Real = vector_math::Real<Value>;
  if constexpr (!kIsNarrow<Value>) {
    if (from.width == width) return {from.data, from.stride};
  }
  Real* rows = to.get(from.count * width);
  for (int64_t i = 0; i < from.count; ++i) {
    Real* row = rows + i * width;
    if constexpr (kIsNarrow<Value>) {
      widen(from.data + i * from.stride, from.width, row);
    } else {
      std::copy_n(from.data + i * from.stride, from.width, row);
    }
    std::fill(row + from.width, row + width, Real(0));
  }
  return {rows, width};
}

/// Rows for products that read them element by element.
template <class Value>
RealRows<vector_math::Real<Value>> factor_rows(const RowsAt<Value>& from,
                                               TileMemory<vector_math::Real<Value>>& to) {
  return rows_of_width(from, from.width, to);
}

/// Rows for products that read them in whole vectors.
template <class Value>
RealRows<vector_math::Real<Value>> vector_rows(const RowsAt<Value>& from,
                                               TileMemory<vector_math::Real<Value>>& to) {
  return rows_of_width(from, round_up(from.width, kLanes<vector_math::Real<Value>>), to);
}

}  // namespace shoal::attention_tiles
