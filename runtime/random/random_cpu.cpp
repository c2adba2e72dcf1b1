#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>

#include "runtime/device/cpu_clones.h"
#include "runtime/random/philox.h"

// N rows  P values per row

namespace shoal::philox {
namespace {

/// Blocks that are drawn together, so that compilers can use vectors: (id[i], block[i]).
constexpr int kBatch = 16;
struct Batch {
  uint64_t id[kBatch];
  uint32_t block[kBatch];
};

template <Distribution kDistribution, class Real>
SHOAL_CPU_CLONES void draw(const StreamKey& key, const Batch& batch, Real* __restrict__ out) {
  // Two loops: together they are too long for the vectoriser.
  uint32_t word[4][kBatch];
  for (int i = 0; i < kBatch; ++i) {
    const Words words = words_at(key, batch.id[i], batch.block[i]);
    for (int j = 0; j < 4; ++j) word[j][i] = words.w[j];
  }
  for (int i = 0; i < kBatch; ++i) {
    const Words words{{word[0][i], word[1][i], word[2][i], word[3][i]}};
    values_of<kDistribution>(words, out + i * static_cast<int>(kLanes<Real>));
  }
}

/// Draws the kBatch blocks into out[kBatch · kLanes].
template <class Real>
using DrawBatch = void (*)(const StreamKey& key, const Batch& batch, Real* out);

template <class Real>
DrawBatch<Real> draw_batch(Distribution distribution) {
  switch (distribution) {
    case Distribution::kUniform:
      return &draw<Distribution::kUniform, Real>;
    case Distribution::kNormal:
      return &draw<Distribution::kNormal, Real>;
    case Distribution::kGumbel:
      return &draw<Distribution::kGumbel, Real>;
  }
  return nullptr;
}

/// Blocks of several rows go through the vectors together.
template <class Real>
void draw_rows(DrawBatch<Real> draw, const StreamKey& key, const at::Tensor& id_N,
               const at::Tensor& out_NP) {
  constexpr int64_t kGrainBlocks = 4096, kLanes = philox::kLanes<Real>;
  const int64_t P = out_NP.size(1), blocks_per_row = (P + kLanes - 1) / kLanes;
  const int64_t* ids = id_N.const_data_ptr<int64_t>();
  Real* values = out_NP.mutable_data_ptr<Real>();
  const auto draw_blocks = [&](int64_t begin, int64_t end) {
    int64_t row = begin / blocks_per_row, block = begin % blocks_per_row;
    Real* out = values + row * P + block * kLanes;
    Batch batch{};
    Real drawn[kBatch * kLanes];
    for (; begin < end; begin += kBatch) {
      const int64_t size = std::min<int64_t>(kBatch, end - begin);
      int64_t count[kBatch], total = 0;
      for (int64_t i = 0; i < size; ++i) {
        batch.id[i] = static_cast<uint64_t>(ids[row]) + (static_cast<uint64_t>(block) >> 32);
        batch.block[i] = static_cast<uint32_t>(block);
        count[i] = std::min(kLanes, P - block * kLanes);
        total += count[i];
        if (++block < blocks_per_row) continue;
        block = 0;
        ++row;
      }
      if (total == kBatch * kLanes) {
        draw(key, batch, out);
        out += total;
        continue;
      }
      draw(key, batch, drawn);
      for (int64_t i = 0; i < size; ++i) {
        std::memcpy(out, drawn + i * kLanes, static_cast<size_t>(count[i]) * sizeof(Real));
        out += count[i];
      }
    }
  };
  at::parallel_for(0, out_NP.size(0) * blocks_per_row, kGrainBlocks, draw_blocks);
}

void random_rows_cpu(const at::Tensor& out_NP, const at::Tensor& id_N, at::IntArrayRef stream,
                     int64_t distribution) {
  const StreamKey key =
      stream_key(stream[0], static_cast<uint32_t>(stream[1]), stream[2], stream[3]);
  AT_DISPATCH_FLOATING_TYPES(out_NP.scalar_type(), "random_rows_", [&] {
    draw_rows(draw_batch<scalar_t>(static_cast<Distribution>(distribution)), key, id_N, out_NP);
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) { m.impl("random_rows_", &random_rows_cpu); }

}  // namespace shoal::philox
