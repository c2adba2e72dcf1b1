#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/device/cpu_clones.h"
#include "runtime/device/real_types.h"
#include "runtime/products/gemm.h"

#pragma GCC optimize("O3", "fp-contract=fast", "no-trapping-math", "no-math-errno")

// R rows  D width  K keys of a unit  k keys chosen per row  u units  H = R k hits
namespace shoal {
namespace {

using torch::Tensor;

// Queries, a block of keys and their scores: 0.9 MiB of float32 at width 512. Of wider ones the
// product itself works block by block.
constexpr int64_t kTileRows = 128;
constexpr int64_t kTileKeys = 256;

/// Rows of one unit.
struct Tile {
  int64_t unit, first, count;
};

/// Each unit's rows in tiles of nearly equal size. Independent of the threads: a row's scores come
/// from the same products whatever their number.
std::vector<Tile> tiles_of(c10::IntArrayRef rows_u) {
  std::vector<Tile> tiles;
  int64_t first = 0;
  for (size_t unit = 0; unit < rows_u.size(); ++unit) {
    const int64_t num_tiles = (rows_u[unit] + kTileRows - 1) / kTileRows;
    for (int64_t i = 0; i < num_tiles; ++i) {
      const int64_t begin = rows_u[unit] * i / num_tiles, end = rows_u[unit] * (i + 1) / num_tiles;
      tiles.push_back({static_cast<int64_t>(unit), first + begin, end - begin});
    }
    first += rows_u[unit];
  }
  return tiles;
}

/// The highest scores of each row of a tile so far, highest first, and their keys.
template <class Real>
struct Best {
  int64_t k;
  Real* score_Rk;
  int64_t* key_Rk;
};

/// Enters the scores of the keys [first_key, first_key + count) into one row's best. Keys come in
/// ascending order, so an equal score does not displace.
template <class Real>
SHOAL_INLINE void keep_best(const Real* score, int64_t first_key, int64_t count, int64_t k,
                            Real* best, int64_t* key) {
  constexpr int64_t kLanes = 16;
  const auto enter = [&](int64_t i) {
    if (!(score[i] > best[k - 1])) return;  // nor a NaN
    int64_t place = k - 1;
    for (; place > 0 && score[i] > best[place - 1]; --place) {
      best[place] = best[place - 1];
      key[place] = key[place - 1];
    }
    best[place] = score[i];
    key[place] = first_key + i;
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Real least = best[k - 1];
    int is_any = 0;
    for (int64_t lane = 0; lane < kLanes; ++lane) is_any |= score[i + lane] > least;
    if (is_any == 0) continue;
    for (int64_t lane = 0; lane < kLanes; ++lane) enter(i + lane);
  }
  for (; i < count; ++i) enter(i);
}

template <class Real>
SHOAL_INLINE void keep_best_rows(const Real* score, int64_t first_key, int64_t count, int64_t rows,
                                 const Best<Real>& best) {
  for (int64_t r = 0; r < rows; ++r) {
    keep_best(score + r * count, first_key, count, best.k, best.score_Rk + r * best.k,
              best.key_Rk + r * best.k);
  }
}

template <int N, class Real>
SHOAL_INLINE void add_rows(const Real* table, int64_t width, const int64_t* row, const Real* weight,
                           Real* __restrict__ out) {
  const Real* from[N];
  Real times[N];
  for (int n = 0; n < N; ++n) from[n] = table + row[n] * width, times[n] = weight[n];
  for (int64_t c = 0; c < width; ++c) {
    Real sum = out[c];
    for (int n = 0; n < N; ++n) sum += times[n] * from[n][c];
    out[c] = sum;
  }
}

/// Rows of a table [., width] and their weights.
template <class Real>
struct Bag {
  const Real* table;
  int64_t width;
  const int64_t* row;
  const Real* weight;
  int64_t count;
};

/// out = the weighted sum of the bag, zero of an empty one.
template <class Real>
SHOAL_INLINE void sum_bag(const Bag<Real>& bag, Real* out) {
  for (int64_t c = 0; c < bag.width; ++c) out[c] = Real(0);
  int64_t i = 0;
  for (; i + 4 <= bag.count; i += 4) {
    add_rows<4>(bag.table, bag.width, bag.row + i, bag.weight + i, out);
  }
  for (; i + 2 <= bag.count; i += 2) {
    add_rows<2>(bag.table, bag.width, bag.row + i, bag.weight + i, out);
  }
  if (i < bag.count) add_rows<1>(bag.table, bag.width, bag.row + i, bag.weight + i, out);
}

template <class Real>
SHOAL_INLINE Real dot(const Real* a, const Real* b, int64_t width) {
  constexpr int64_t kLanes = 16;
  Real lanes[kLanes] = {};
  int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[c + lane] * b[c + lane];
  }
  Real sum = 0;
  for (; c < width; ++c) sum += a[c] * b[c];
  for (const Real lane : lanes) sum += lane;
  return sum;
}

#define SHOAL_LOOKUP_KERNELS(Real)                                                              \
  SHOAL_CPU_CLONES void keep(const Real* score, int64_t first_key, int64_t count, int64_t rows, \
                             const Best<Real>& best) {                                          \
    keep_best_rows(score, first_key, count, rows, best);                                        \
  }                                                                                             \
  SHOAL_CPU_CLONES void sum_of(const Bag<Real>& bag, Real* out) { sum_bag(bag, out); }          \
  SHOAL_CPU_CLONES void dots(const Bag<Real>& bag, const Real* with, Real* dot_k) {             \
    for (int64_t j = 0; j < bag.count; ++j) {                                                   \
      dot_k[j] = dot(with, bag.table + bag.row[j] * bag.width, bag.width);                      \
    }                                                                                           \
  }

SHOAL_LOOKUP_KERNELS(float)
SHOAL_LOOKUP_KERNELS(double)
#undef SHOAL_LOOKUP_KERNELS

/// Softmax of scale * score; NaN where fewer than k keys were entered.
template <class Real>
void softmax(const Real* score, Real scale, int64_t k, Real* weight) {
  if (score[k - 1] == -std::numeric_limits<Real>::infinity()) {
    std::fill(weight, weight + k, std::numeric_limits<Real>::quiet_NaN());
    return;
  }
  Real sum = 0;
  for (int64_t j = 0; j < k; ++j) {
    weight[j] = std::exp(scale * (score[j] - score[0]));
    sum += weight[j];
  }
  for (int64_t j = 0; j < k; ++j) weight[j] /= sum;
}

/// What both directions work on.
template <class Real>
struct Lookup {
  const Real *query, *keys, *values;
  const Real* scale;  // nullptr: 1
  int64_t num_keys, width, k;

  const Real* table_of(const Real* tables, int64_t unit) const {
    return tables + unit * num_keys * width;
  }
  Real scale_of(int64_t unit) const { return scale == nullptr ? Real(1) : scale[unit]; }
};

template <class Real>
Lookup<Real> lookup_of(const Tensor& query, const Tensor& keys, const Tensor& values,
                       const Tensor& scale, int64_t k) {
  return {const_data<Real>(query),
          const_data<Real>(keys),
          const_data<Real>(values),
          const_data_or_null<Real>(scale),
          keys.size(1),
          keys.size(2),
          k};
}

template <class Real>
struct Found {
  Real* y;
  int64_t* key_Rk;
  Real *score_Rk, *weight_Rk;
};

/// The best keys of a tile's rows: the scores of a block of keys at a time.
template <class Real>
void search(const Lookup<Real>& lookup, const Tile& tile, Real* scores, const Best<Real>& best) {
  const Real* query = lookup.query + tile.first * lookup.width;
  const Real* keys = lookup.table_of(lookup.keys, tile.unit);
  std::fill(best.score_Rk, best.score_Rk + tile.count * best.k,
            -std::numeric_limits<Real>::infinity());
  for (int64_t i = 0; i < tile.count * best.k; ++i) best.key_Rk[i] = i % best.k;
  for (int64_t key = 0; key < lookup.num_keys; key += kTileKeys) {
    const int64_t count = std::min(kTileKeys, lookup.num_keys - key);
    gemm(tile.count, count, lookup.width, {query, lookup.width},
         {keys + key * lookup.width, lookup.width, true}, Real(0), scores, count);
    keep(scores, key, count, tile.count, best);
  }
}

template <class Real>
void look_up(const Lookup<Real>& lookup, c10::IntArrayRef rows_u, const Found<Real>& found) {
  const std::vector<Tile> tiles = tiles_of(rows_u);
  at::parallel_for(0, static_cast<int64_t>(tiles.size()), 1, [&](int64_t begin, int64_t end) {
    std::vector<Real> scores(static_cast<size_t>(kTileRows * kTileKeys));
    for (int64_t i = begin; i < end; ++i) {
      const Tile& tile = tiles[static_cast<size_t>(i)];
      const int64_t k = lookup.k;
      search(lookup, tile, scores.data(),
             {k, found.score_Rk + tile.first * k, found.key_Rk + tile.first * k});
      const Real* values = lookup.table_of(lookup.values, tile.unit);
      for (int64_t row = tile.first; row < tile.first + tile.count; ++row) {
        Real* weight = found.weight_Rk + row * k;
        softmax(found.score_Rk + row * k, lookup.scale_of(tile.unit), k, weight);
        sum_of(Bag<Real>{values, lookup.width, found.key_Rk + row * k, weight, k},
               found.y + row * lookup.width);
      }
    }
  });
}

std::tuple<Tensor, Tensor, Tensor, Tensor> forward_cpu(const Tensor& query, c10::IntArrayRef rows_u,
                                                       const Tensor& keys, const Tensor& values,
                                                       const MaybeTensor& scale, int64_t k) {
  const int64_t num_rows = query.size(0);
  Tensor y = torch::empty_like(query);
  Tensor chosen_Rk = torch::empty({num_rows, k}, torch::kInt64);
  Tensor score_Rk = torch::empty({num_rows, k}, query.options());
  Tensor weight_Rk = torch::empty({num_rows, k}, query.options());
  AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "memory_lookup_forward", [&] {
    const Lookup<scalar_t> lookup =
        lookup_of<scalar_t>(query, keys, values, scale.value_or(Tensor()), k);
    look_up(lookup, rows_u,
            Found<scalar_t>{y.data_ptr<scalar_t>(), chosen_Rk.data_ptr<int64_t>(),
                            score_Rk.data_ptr<scalar_t>(), weight_Rk.data_ptr<scalar_t>()});
  });
  return {y, chosen_Rk, score_Rk, weight_Rk};
}

/// Gradients on their way back. `score_grad_Rk` is that of scale * score.
template <class Real>
struct Gradients {
  const Real* y_grad;
  const int64_t* chosen_Rk;
  const Real *score_Rk, *weight_Rk;
  Real* score_grad_Rk;
  Real* query_grad;  // nullptr: not wanted
};

/// Through the softmax and the scores to the query, row by row.
template <class Real>
void rows_backward(const Lookup<Real>& lookup, c10::IntArrayRef rows_u,
                   const Gradients<Real>& grads) {
  const std::vector<Tile> tiles = tiles_of(rows_u);
  const int64_t k = lookup.k, width = lookup.width;
  at::parallel_for(0, static_cast<int64_t>(tiles.size()), 1, [&](int64_t begin, int64_t end) {
    std::vector<Real> weight_grad(static_cast<size_t>(k)), scaled(weight_grad);
    for (int64_t i = begin; i < end; ++i) {
      const Tile& tile = tiles[static_cast<size_t>(i)];
      const Real scale = lookup.scale_of(tile.unit);
      for (int64_t row = tile.first; row < tile.first + tile.count; ++row) {
        const int64_t* chosen = grads.chosen_Rk + row * k;
        const Real* weight = grads.weight_Rk + row * k;
        Real* score_grad = grads.score_grad_Rk + row * k;
        dots(Bag<Real>{lookup.table_of(lookup.values, tile.unit), width, chosen, nullptr, k},
             grads.y_grad + row * width, weight_grad.data());
        Real mean = 0;
        for (int64_t j = 0; j < k; ++j) mean += weight[j] * weight_grad[static_cast<size_t>(j)];
        for (int64_t j = 0; j < k; ++j) {
          score_grad[j] = weight[j] * (weight_grad[static_cast<size_t>(j)] - mean);
          scaled[static_cast<size_t>(j)] = score_grad[j] * scale;
        }
        if (grads.query_grad == nullptr) continue;
        sum_of(Bag<Real>{lookup.table_of(lookup.keys, tile.unit), width, chosen, scaled.data(), k},
               grads.query_grad + row * width);
      }
    }
  });
}

/// Hits sorted by (unit, key), in the order of the rows within a key.
template <class Real>
struct SortedHits {
  std::vector<int64_t> first;  ///< [u K + 1]
  std::vector<int64_t> row_H;
  std::vector<Real> weight_H, score_grad_H;
};

template <class Real>
SortedHits<Real> sort_hits(const Lookup<Real>& lookup, c10::IntArrayRef rows_u,
                           const Gradients<Real>& grads) {
  const size_t num_tables = rows_u.size() * static_cast<size_t>(lookup.num_keys);
  SortedHits<Real> hits{std::vector<int64_t>(num_tables + 1, 0), {}, {}, {}};
  const auto for_each_hit = [&](const auto& body) {
    int64_t hit = 0;
    for (size_t unit = 0; unit < rows_u.size(); ++unit) {
      const int64_t base = static_cast<int64_t>(unit) * lookup.num_keys;
      const int64_t end = hit + rows_u[unit] * lookup.k;
      for (; hit < end; ++hit) {
        body(hit, static_cast<int64_t>(unit), static_cast<size_t>(base + grads.chosen_Rk[hit]));
      }
    }
  };
  size_t num_hits = 0;
  for_each_hit([&](int64_t, int64_t, size_t key) { ++hits.first[key + 1], ++num_hits; });
  for (size_t key = 0; key < num_tables; ++key) hits.first[key + 1] += hits.first[key];
  std::vector<int64_t> next(hits.first.begin(), hits.first.end() - 1);
  hits.row_H.resize(num_hits);
  hits.weight_H.resize(num_hits);
  hits.score_grad_H.resize(num_hits);
  for_each_hit([&](int64_t hit, int64_t unit, size_t key) {
    const auto place = static_cast<size_t>(next[key]++);
    hits.row_H[place] = hit / lookup.k;
    hits.weight_H[place] = grads.weight_Rk[hit];
    hits.score_grad_H[place] = grads.score_grad_Rk[hit] * lookup.scale_of(unit);
  });
  return hits;
}

/// Each key's and each value's gradient: sums over the key's hits.
template <class Real>
void tables_backward(const Lookup<Real>& lookup, const SortedHits<Real>& hits,
                     const Gradients<Real>& grads, Real* keys_grad, Real* values_grad) {
  constexpr int64_t kGrain = 64;
  const auto num_tables = static_cast<int64_t>(hits.first.size()) - 1;
  at::parallel_for(0, num_tables, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t key = begin; key < end; ++key) {
      const int64_t first = hits.first[static_cast<size_t>(key)];
      const int64_t count = hits.first[static_cast<size_t>(key) + 1] - first;
      const int64_t* row = hits.row_H.data() + first;
      sum_of(Bag<Real>{grads.y_grad, lookup.width, row, hits.weight_H.data() + first, count},
             values_grad + key * lookup.width);
      sum_of(Bag<Real>{lookup.query, lookup.width, row, hits.score_grad_H.data() + first, count},
             keys_grad + key * lookup.width);
    }
  });
}

template <class Real>
void scale_backward(c10::IntArrayRef rows_u, int64_t k, const Gradients<Real>& grads,
                    Real* scale_grad) {
  int64_t hit = 0;
  for (size_t unit = 0; unit < rows_u.size(); ++unit) {
    const int64_t end = hit + rows_u[unit] * k;
    scale_grad[unit] = 0;
    for (; hit < end; ++hit) scale_grad[unit] += grads.score_grad_Rk[hit] * grads.score_Rk[hit];
  }
}

std::vector<Tensor> backward_cpu(const Tensor& grad, at::TensorList saved, c10::IntArrayRef rows_u,
                                 bool needs_query_grad) {
  const Tensor &query = saved[0], &keys = saved[1], &values = saved[2], &chosen_Rk = saved[3],
               &score_Rk = saved[4], &weight_Rk = saved[5], &scale = saved[6];
  const int64_t k = chosen_Rk.size(1);
  Tensor query_grad = needs_query_grad ? torch::empty_like(query) : Tensor();
  Tensor keys_grad = torch::empty_like(keys), values_grad = torch::empty_like(values);
  Tensor scale_grad = scale.defined() ? torch::empty_like(scale) : Tensor();
  Tensor score_grad_Rk = torch::empty_like(score_Rk);
  AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "memory_lookup_backward", [&] {
    const Lookup<scalar_t> lookup = lookup_of<scalar_t>(query, keys, values, scale, k);
    const Gradients<scalar_t> grads{
        grad.const_data_ptr<scalar_t>(),     chosen_Rk.const_data_ptr<int64_t>(),
        score_Rk.const_data_ptr<scalar_t>(), weight_Rk.const_data_ptr<scalar_t>(),
        score_grad_Rk.data_ptr<scalar_t>(),  data_or_null<scalar_t>(query_grad)};
    rows_backward(lookup, rows_u, grads);
    tables_backward(lookup, sort_hits(lookup, rows_u, grads), grads, keys_grad.data_ptr<scalar_t>(),
                    values_grad.data_ptr<scalar_t>());
    if (scale.defined()) scale_backward(rows_u, k, grads, scale_grad.data_ptr<scalar_t>());
  });
  return {query_grad, keys_grad, values_grad, scale_grad};
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("memory_lookup_forward", forward_cpu);
  m.impl("memory_lookup_backward", backward_cpu);
}

}  // namespace shoal
