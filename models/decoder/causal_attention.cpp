#include "models/decoder/causal_attention.h"

#include <ATen/ops/scaled_dot_product_attention.h>

#include <optional>
#include <vector>

#include "models/decoder/dropout_attention.h"

// B sequences  S tokens  C width  N heads  M key and value heads  P positions  H head width C / N
namespace shoal {
namespace {

/// [B, M, P, H] -> [B, N, P, H], repeating each head N / M times.
torch::Tensor repeat_heads(const torch::Tensor& x_BMPH, int64_t heads) {
  const int64_t B = x_BMPH.size(0), M = x_BMPH.size(1), P = x_BMPH.size(2), H = x_BMPH.size(3);
  if (M == heads) return x_BMPH;
  return x_BMPH.unsqueeze(2).expand({B, M, heads / M, P, H}).reshape({B, heads, P, H});
}

}  // namespace

torch::Tensor split_heads(const torch::Tensor& x_BSC, int64_t head_width) {
  return x_BSC.view({x_BSC.size(0), x_BSC.size(1), x_BSC.size(2) / head_width, head_width})
      .transpose(1, 2);
}

CausalAttentionImpl::CausalAttentionImpl(const Sizes& sizes, const torch::TensorOptions& options)
    : sizes_(sizes), dropout_(sizes.dropout, sizes.path + ".probabilities.dropout") {
  TORCH_CHECK(sizes.width % sizes.heads == 0, sizes.heads, " heads do not divide a width of ",
              sizes.width);
  TORCH_CHECK(sizes.heads % sizes.kv_heads == 0, sizes.kv_heads,
              " heads of keys and values do not divide ", sizes.heads, " heads");
  const int64_t kv_width = sizes.width / sizes.heads * sizes.kv_heads;
  const auto bias = sizes.has_bias ? std::optional(Init::zeros()) : std::nullopt;
  qkv = register_module("qkv",
                        Linear(sizes.width, sizes.width + 2 * kv_width, options, sizes.qkv, bias));
  proj = register_module("proj", Linear(sizes.width, sizes.width, options, sizes.proj, bias));
}

CausalAttentionImpl::Heads CausalAttentionImpl::heads_of(const torch::Tensor& x_BSC,
                                                         const Rotation& rotation) const {
  const int64_t H = sizes_.width / sizes_.heads, kv_width = sizes_.kv_heads * H;
  // chunk() on the last dimension: the gradients of all parts are joined by one copy.
  std::vector<torch::Tensor> part =
      qkv->forward(x_BSC).split_with_sizes({sizes_.width, kv_width, kv_width}, /*dim=*/2);
  for (torch::Tensor& heads : part) heads = split_heads(heads, H);
  return {rotate(part[0], rotation), rotate(part[1], rotation), part[2]};
}

torch::Tensor CausalAttentionImpl::attend(const Heads& heads, const torch::Tensor& mask,
                                          bool is_causal) const {
  const torch::Tensor& query = heads.query_BNSH;
  const int64_t B = query.size(0), N = query.size(1), S = query.size(2), H = query.size(3);
  const auto product = [&](const Heads& h, bool hides_later) {
    return at::scaled_dot_product_attention(h.query_BNSH, h.key_BMSH, h.value_BMSH,
                                            mask.defined() ? std::optional(mask) : std::nullopt,
                                            /*dropout_p=*/0.0, hides_later, sizes_.scale);
  };
  if (S != 1) {
    return product({query, repeat_heads(heads.key_BMSH, N), repeat_heads(heads.value_BMSH, N)},
                   is_causal);
  }
  // For a single token, query heads that share a key head are rows of one product without copies.
  const torch::Tensor rows = query.reshape({B, sizes_.kv_heads, N / sizes_.kv_heads, H});
  return product({rows, heads.key_BMSH, heads.value_BMSH}, /*hides_later=*/false)
      .reshape({B, N, S, H});
}

torch::Tensor CausalAttentionImpl::project(const torch::Tensor& y_BNSH) const {
  return proj->forward(
      y_BNSH.transpose(1, 2).reshape({y_BNSH.size(0), y_BNSH.size(2), sizes_.width}));
}

torch::Tensor CausalAttentionImpl::forward(const torch::Tensor& x_BSC, const Rotation& rotation,
                                           const StepContext& step) const {
  const Heads heads = heads_of(x_BSC, rotation);
  if (!dropout_.is_active(step)) return project(attend(heads, {}, /*is_causal=*/true));
  return project(attend_with_dropout(heads.query_BNSH, repeat_heads(heads.key_BMSH, sizes_.heads),
                                     repeat_heads(heads.value_BMSH, sizes_.heads),
                                     {sizes_.scale, dropout_, step}));
}

torch::Tensor CausalAttentionImpl::decode(const torch::Tensor& x_BSC, const Rotation& rotation,
                                          KeyValueCache::Layer& cache,
                                          const DecodeStep& decode) const {
  const Heads added = heads_of(x_BSC, rotation);
  decode.append(added.key_BMSH, cache.key_bNPH);
  decode.append(added.value_BMSH, cache.value_bNPH);
  if (decode.is_first()) return project(attend(added, {}, /*is_causal=*/true));
  const int64_t end = decode.end();
  return project(attend(
      {added.query_BNSH, cache.key_bNPH.narrow(2, 0, end), cache.value_bNPH.narrow(2, 0, end)},
      decode.mask_b1SE(), /*is_causal=*/false));
}

KeyValueCache::Layer CausalAttentionImpl::make_cache(int64_t b, int64_t capacity,
                                                     const torch::TensorOptions& options) const {
  const std::vector<int64_t> sizes{b, sizes_.kv_heads, capacity, sizes_.width / sizes_.heads};
  return {torch::zeros(sizes, options), torch::zeros(sizes, options)};
}

void CausalAttentionImpl::list_products(double rows, ProductList& list) const {
  list.visit(*qkv, rows);
  list.between(rows * rows * static_cast<double>(sizes_.width));  // of half of all pairs
  list.visit(*proj, rows);
}

}  // namespace shoal
