#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "models/kernels/attention_rows.h"
#include "models/kernels/attention_tiles.h"
#include "runtime/base/integers.h"
#include "runtime/device/real_types.h"

/// Tiles of the CPU kernels of sparse_query_attention.h: some tokens, the queries, attend to all
/// keys up to a limit. The forward pass calls gather_rows and gather_limits for each tile of
/// query_tiles(). The backward pass makes tiles of the queries that reach a range of keys, gathers
/// them alike, and adds up gradients by its own loops.
// B sequences  S tokens  N query heads  M heads of keys and values  G = N / M  H head width
// W head width rounded up to whole vectors  R queries of all sequences
// Q rows of a tile: the G heads of some queries  K keys of a tile
namespace shoal::sparse_query_tiles {

// factor_rows and vector_rows (padded to whole vectors of kLanes) turn strided rows (RowsAt) into
// rows in the type to compute in (RealRows, scratch TileMemory). Key limits are Integer, as wide.
using attention_tiles::factor_rows;
using attention_tiles::for_each_by_cost;
using attention_tiles::Integer;
using attention_tiles::kLanes;
using attention_tiles::RealRows;
using attention_tiles::RowsAt;
using attention_tiles::TileMemory;
using attention_tiles::vector_rows;

/// Rows and keys per tile, chosen to fit into the caches.
inline constexpr int64_t kRows = 96, kKeys = 96;

/// A tile: queries [first, last) of sequence b, for key and value head m.
struct QueryTile {
  int64_t b, m, first, last;
};

/// Strided view [B, M, S, H] of keys or values (const Value) or of their gradients.
template <class Value>
struct HeadRows {
  Value* data;
  int64_t sequence_stride, head_stride, row_stride, width;

  explicit HeadRows(const torch::Tensor& x_BMSH)
      : data(data_of(x_BMSH)),
        sequence_stride(x_BMSH.stride(0)),
        head_stride(x_BMSH.stride(1)),
        row_stride(x_BMSH.stride(2)),
        width(x_BMSH.size(3)) {}
  Value* row(int64_t b, int64_t m, int64_t s) const {
    return data + b * sequence_stride + m * head_stride + s * row_stride;
  }
  RowsAt<std::remove_const_t<Value>> rows(const QueryTile& tile, int64_t s, int64_t count) const {
    return {row(tile.b, tile.m, s), row_stride, count, width};
  }
  /// Rows that a matrix product prefetches, from key s on; they may lie past the end.
  attention_tiles::Ahead ahead(const QueryTile& tile, int64_t s) const {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(Value));
    return {row(tile.b, tile.m, s), row_stride * kBytes, width * kBytes};
  }

 private:
  static Value* data_of(const torch::Tensor& x) {
    if constexpr (std::is_const_v<Value>) {
      return const_data<std::remove_const_t<Value>>(x);
    } else {
      return shoal::data<Value>(x);
    }
  }
};

/// Sizes and limits of one call; a tile has up to `positions` queries.
template <class Value>
struct SparseShape {
  using Real = vector_math::Real<Value>;
  int64_t B, M, S, H, N, G, W, positions;
  const int64_t* limit_R;     ///< last key, inclusive, that each query attends to in its sequence
  at::IntArrayRef offset_b1;  ///< [B + 1]: sequence b has queries [offset_b1[b], offset_b1[b + 1])
  Real scale;

  SparseShape(const torch::Tensor& query_RNH, const torch::Tensor& key_BMSH,
              const torch::Tensor& limit, at::IntArrayRef offset, double scale)
      : B(key_BMSH.size(0)),
        M(key_BMSH.size(1)),
        S(key_BMSH.size(2)),
        H(key_BMSH.size(3)),
        N(query_RNH.size(1)),
        G(N / M),
        W(round_up(H, kLanes<Real>)),
        positions(std::max<int64_t>(1, kRows / std::max<int64_t>(1, G))),
        limit_R(limit.const_data_ptr<int64_t>()),
        offset_b1(offset),
        scale(static_cast<Real>(scale)) {}
  /// Number of rows in a tile, exact and rounded up to whole vectors.
  int64_t rows_of(const QueryTile& tile) const { return (tile.last - tile.first) * G; }
  int64_t padded_rows_of(const QueryTile& tile) const {
    return round_up(rows_of(tile), kLanes<Real>);
  }
  /// Index in [R, N] of row q of a tile.
  int64_t row_of(const QueryTile& tile, int64_t q) const {
    return (tile.first + q / G) * N + tile.m * G + q % G;
  }
  int64_t most_rows() const { return round_up(positions * G, kLanes<Real>); }
};

/// Destinations of a tile's rows, where Q = padded_rows_of(tile).
template <class Real>
struct GatheredRows {
  Real* rows_QW;  ///< a row-major copy, each row padded with zeros to W; null: not needed
  Real* rows_HQ;  ///< a transposed copy; columns of padding rows are zeros
};

/// Copies a tile's rows from [R, N, H], multiplied by `factor`.
template <class Value>
void gather_rows(const SparseShape<Value>& shape, const QueryTile& tile, const Value* from_RNH,
                 vector_math::Real<Value> factor,
                 const GatheredRows<vector_math::Real<Value>>& to) {
  using Real = vector_math::Real<Value>;
  const int64_t H = shape.H, W = shape.W, rows = shape.rows_of(tile);
  const int64_t Q = shape.padded_rows_of(tile);
  for (int64_t q = 0; q < rows; ++q) {
    const Value* from = from_RNH + shape.row_of(tile, q) * H;
    for (int64_t h = 0; h < H; ++h) to.rows_HQ[h * Q + q] = vector_math::real_of(from[h]) * factor;
    if (to.rows_QW == nullptr) continue;
    Real* row = to.rows_QW + q * W;
    for (int64_t h = 0; h < H; ++h) row[h] = vector_math::real_of(from[h]) * factor;
    std::fill(row + H, row + W, Real(0));
  }
  for (int64_t h = 0; h < H; ++h)
    std::fill(to.rows_HQ + h * Q + rows, to.rows_HQ + h * Q + Q, Real(0));
}

/// Copies the key limits of a tile's padded_rows_of(tile) rows; padding rows repeat the last limit.
template <class Value, class Index>
void gather_limits(const SparseShape<Value>& shape, const QueryTile& tile, int64_t padded_rows,
                   Index* limit_Q) {
  for (int64_t q = 0; q < padded_rows; ++q) {
    const int64_t r = std::min(tile.last - 1, tile.first + q / shape.G);
    limit_Q[q] = static_cast<Index>(shape.limit_R[r]);
  }
}

/// All tiles of queries, in ascending order within a sequence and head.
template <class Value>
std::vector<QueryTile> query_tiles(const SparseShape<Value>& shape) {
  std::vector<QueryTile> tiles;
  for (int64_t b = 0; b < shape.B; ++b) {
    for (int64_t m = 0; m < shape.M; ++m) {
      for (int64_t r = shape.offset_b1[b]; r < shape.offset_b1[b + 1]; r += shape.positions) {
        tiles.push_back({b, m, r, std::min(shape.offset_b1[b + 1], r + shape.positions)});
      }
    }
  }
  return tiles;
}

}  // namespace shoal::sparse_query_tiles
