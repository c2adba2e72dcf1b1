#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>

#include "runtime/random/random_batches.h"

namespace shoal {
namespace {

using philox::Batch;
using philox::Distribution;
using philox::DrawBatch;
using philox::kBatch;
using philox::StreamKey;

constexpr int64_t kGrainBlocks = 4096;

StreamKey unpack(int64_t key, int64_t tag) {
  const auto bits = static_cast<uint64_t>(key);
  return {{static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)},
          static_cast<uint32_t>(tag)};
}

/// `count` values from the blocks first, first + 1, ... of a fill.
template <class Real>
void fill_values(DrawBatch draw, const StreamKey& key, uint64_t first, Real* out, int64_t count) {
  constexpr int64_t kValues = kBatch * philox::kLanes<Real>;
  Batch batch;
  for (int64_t done = 0; done < count; done += kValues, first += kBatch) {
    for (uint64_t i = 0; i < kBatch; ++i) {
      batch.id[i] = (first + i) >> 32;
      batch.block[i] = static_cast<uint32_t>(first + i);
    }
    if (count - done >= kValues) {
      draw(key, batch, out + done);
    } else {
      Real last[kValues];
      draw(key, batch, last);
      std::memcpy(out + done, last, static_cast<size_t>(count - done) * sizeof(Real));
    }
  }
}

template <class Real>
void fill(DrawBatch draw, const StreamKey& key, Real* out, int64_t count) {
  constexpr int64_t kLanes = philox::kLanes<Real>;
  const int64_t num_blocks = (count + kLanes - 1) / kLanes;
  at::parallel_for(0, num_blocks, kGrainBlocks, [&](int64_t begin, int64_t end) {
    fill_values(draw, key, static_cast<uint64_t>(begin), out + begin * kLanes,
                std::min(count, end * kLanes) - begin * kLanes);
  });
}

/// Rows `begin` to `end`; blocks of several rows go through the vectors together.
template <class Real>
void draw_rows(DrawBatch draw, const StreamKey& key, const int64_t* id_N, Real* out_NP, int64_t P,
               int64_t begin, int64_t end) {
  constexpr int64_t kLanes = philox::kLanes<Real>;
  const int64_t blocks_per_row = (P + kLanes - 1) / kLanes;
  Batch batch{};
  Real drawn[kBatch * kLanes];
  for (int64_t block = begin * blocks_per_row; block < end * blocks_per_row; block += kBatch) {
    const int64_t size = std::min<int64_t>(kBatch, end * blocks_per_row - block);
    for (int64_t i = 0; i < size; ++i) {
      batch.id[i] = static_cast<uint64_t>(id_N[(block + i) / blocks_per_row]);
      batch.block[i] = static_cast<uint32_t>((block + i) % blocks_per_row);
    }
    draw(key, batch, drawn);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t row = (block + i) / blocks_per_row;
      const int64_t first = (block + i) % blocks_per_row * kLanes;
      std::memcpy(out_NP + row * P + first, drawn + i * kLanes,
                  static_cast<size_t>(std::min(kLanes, P - first)) * sizeof(Real));
    }
  }
}

template <class Real>
void fill_rows(DrawBatch draw, const StreamKey& key, const int64_t* id_N, Real* out_NP, int64_t N,
               int64_t P) {
  const int64_t blocks_per_row = std::max<int64_t>(1, P / philox::kLanes<Real>);
  const int64_t grain = std::max<int64_t>(1, kGrainBlocks / blocks_per_row);
  at::parallel_for(0, P > 0 ? N : 0, grain, [&](int64_t begin, int64_t end) {
    draw_rows(draw, key, id_N, out_NP, P, begin, end);
  });
}

void random_fill_cpu(const at::Tensor& out, int64_t key, int64_t tag, int64_t distribution) {
  const bool is_double = out.scalar_type() == at::kDouble;
  const DrawBatch draw = philox::draw_batch(static_cast<Distribution>(distribution), is_double);
  if (is_double) {
    fill(draw, unpack(key, tag), out.mutable_data_ptr<double>(), out.numel());
  } else {
    fill(draw, unpack(key, tag), out.mutable_data_ptr<float>(), out.numel());
  }
}

void random_rows_cpu(const at::Tensor& out_NP, const at::Tensor& id_N, int64_t key, int64_t tag,
                     int64_t distribution) {
  const bool is_double = out_NP.scalar_type() == at::kDouble;
  const DrawBatch draw = philox::draw_batch(static_cast<Distribution>(distribution), is_double);
  const int64_t* ids = id_N.const_data_ptr<int64_t>();
  const int64_t N = out_NP.size(0);
  const int64_t P = out_NP.size(1);
  if (is_double) {
    fill_rows(draw, unpack(key, tag), ids, out_NP.mutable_data_ptr<double>(), N, P);
  } else {
    fill_rows(draw, unpack(key, tag), ids, out_NP.mutable_data_ptr<float>(), N, P);
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("random_fill_", &random_fill_cpu);
  m.impl("random_rows_", &random_rows_cpu);
}

}  // namespace shoal
