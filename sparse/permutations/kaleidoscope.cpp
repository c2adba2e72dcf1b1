#include "sparse/permutations/kaleidoscope.h"

#include "runtime/random/random.h"
#include "sparse/permutations/soft_method.h"

// x [u, G, a, s, b]  block: members that are permuted alike, of which there are s / block
namespace shoal {
namespace {

/// View of x with dimension s split into [s / block, first, block / first].
torch::Tensor in_blocks(const torch::Tensor& x, int64_t block, int64_t first) {
  return x.view(
      {x.size(0), x.size(1), x.size(2), x.size(3) / block, first, block / first, x.size(4)});
}

/// Moves the even members of each block before the odd ones with probability p [u, G]; if
/// transposed, moves them back.
torch::Tensor evens_first(const torch::Tensor& x, const torch::Tensor& p_uG, int64_t block,
                          bool is_transposed) {
  const int64_t rows = is_transposed ? block / 2 : 2;
  const torch::Tensor moved = in_blocks(x, block, block / rows).transpose(4, 5);
  const torch::Tensor p = p_uG.view({p_uG.size(0), p_uG.size(1), 1, 1, 1, 1, 1});
  return in_blocks(x, block, rows).lerp(moved, p).reshape(x.sizes());
}

/// Reverses each half of each block with its own probability, p [u, G, 2].
torch::Tensor halves_reversed(const torch::Tensor& x, const torch::Tensor& p_uG2, int64_t block) {
  const torch::Tensor halves = in_blocks(x, block, 2);
  const torch::Tensor p = p_uG2.reshape({p_uG2.size(0), p_uG2.size(1), 1, 1, 2, 1, 1});
  return halves.lerp(halves.flip(5), p).reshape(x.sizes());
}

const Registration<PermutationMethod, SoftMethod<Kaleidoscope>> registered_kaleidoscope{
    "kaleidoscope", "trained while soft, then hard; switches that represent few permutations"};

}  // namespace

torch::Tensor Kaleidoscope::switched(const torch::Tensor& probability_uG,
                                     const torch::Tensor& x_uGasb, bool is_transposed) const {
  const int64_t num_levels = probability_uG.size(2);
  torch::Tensor x = x_uGasb;
  for (int64_t i = 0; i < num_levels; ++i) {
    const int64_t level = is_transposed ? num_levels - 1 - i : i;
    const int64_t block = x_uGasb.size(3) >> level;
    const torch::Tensor p_uG3 = probability_uG.select(2, level);
    const torch::Tensor split_uG = p_uG3.select(2, 0), reverse_uG2 = p_uG3.narrow(2, 1, 2);
    if (is_transposed) {
      x = evens_first(halves_reversed(x, reverse_uG2, block), split_uG, block, true);
    } else {
      x = halves_reversed(evens_first(x, split_uG, block, false), reverse_uG2, block);
    }
  }
  return x;
}

torch::Tensor Kaleidoscope::random_switches(const torch::Tensor& logit_G,
                                            const Stream& stream) const {
  const torch::Tensor uniform_G = torch::empty_like(logit_G);
  fill_uniform(uniform_G, stream);
  return (uniform_G < 0.5).to(logit_G.dtype());
}

}  // namespace shoal
