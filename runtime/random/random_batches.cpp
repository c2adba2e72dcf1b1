#include "runtime/random/random_batches.h"

#include "runtime/device/cpu_clones.h"

namespace shoal::philox {
namespace {

template <Distribution kDistribution, class Real>
SHOAL_HOST_DEVICE void draw(const StreamKey& key, const Batch& batch, Real* __restrict__ out) {
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

// Clones cannot be made of templates.
#define SHOAL_DRAW(name, distribution, Real)                                        \
  SHOAL_CPU_CLONES void name(const StreamKey& key, const Batch& batch, void* out) { \
    draw<Distribution::distribution>(key, batch, static_cast<Real*>(out));          \
  }
SHOAL_DRAW(draw_uniform_float, kUniform, float)
SHOAL_DRAW(draw_uniform_double, kUniform, double)
SHOAL_DRAW(draw_normal_float, kNormal, float)
SHOAL_DRAW(draw_normal_double, kNormal, double)
SHOAL_DRAW(draw_gumbel_float, kGumbel, float)
SHOAL_DRAW(draw_gumbel_double, kGumbel, double)
#undef SHOAL_DRAW

}  // namespace

DrawBatch draw_batch(Distribution distribution, bool is_double) {
  switch (distribution) {
    case Distribution::kUniform:
      return is_double ? &draw_uniform_double : &draw_uniform_float;
    case Distribution::kNormal:
      return is_double ? &draw_normal_double : &draw_normal_float;
    case Distribution::kGumbel:
      return is_double ? &draw_gumbel_double : &draw_gumbel_float;
  }
  return nullptr;
}

}  // namespace shoal::philox
