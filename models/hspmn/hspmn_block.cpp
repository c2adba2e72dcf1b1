#include "models/hspmn/hspmn_block.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

// b sequences  S tokens  C width  M heads of keys and values  H head width
namespace shoal {
namespace {

/// Number of tokens that a dense MLP computes at a time without gradients.
constexpr int64_t kMlpTokens = 8192;

}  // namespace

HspmnBlockImpl::HspmnBlockImpl(const Sizes& sizes, ContextualStream stream, const GateOptions& gate,
                               const FeedForwardOptions& feed_forward, const BuildContext& build)
    : sizes_(sizes),
      stream_(stream),
      mlp_norm_(register_module("mlp_norm",
                                LayerNorm(sizes.place.width, build.tensor_options, sizes.norm))),
      conv_(register_module("conv", CausalConv(sizes.place.width, build.tensor_options))),
      feed_forward_(*this, feed_forward, sizes.place, build) {
  if (stream == ContextualStream::kNone) return;
  const torch::TensorOptions& tensor = build.tensor_options;
  attention_norm_ =
      register_module("attention_norm", LayerNorm(sizes.place.width, tensor, sizes.norm));
  if (stream == ContextualStream::kSparse) {
    gate_ = register_module("gate", TokenGate(gate, sizes.place.width, sizes.context,
                                              sizes.place.path() + ".gate", build));
    attention_ = register_module("attention", SparseAttention(sizes.attention, tensor));
    return;
  }
  const SparseAttentionImpl::Sizes& heads = sizes.attention;
  CausalAttentionImpl::Sizes dense{.width = heads.width, .heads = heads.heads};
  dense.kv_heads = heads.kv_heads;
  dense.scale = 1.0 / std::sqrt(static_cast<double>(heads.width / heads.heads));
  dense.has_bias = false;
  dense.qkv = heads.weight;
  dense.proj = heads.proj;
  dense.path = sizes.place.path() + ".attention";
  dense_attention_ = register_module("attention", CausalAttention(dense, tensor));
}

torch::Tensor HspmnBlockImpl::convolve(const torch::Tensor& u_bSC, const DecoderPass& pass) const {
  if (pass.decoding == nullptr) return conv_->forward(u_bSC);
  torch::Tensor& recent = pass.decoding->cache.recent_b2D;
  const torch::Tensor convolved = conv_->forward(u_bSC, recent);
  // The last two tokens before the padding, of cached and new ones.
  const torch::Tensor all = at::cat({recent, u_bSC}, /*dim=*/1);
  const torch::Tensor& count_b1 = pass.decoding->step.count_b1();
  const torch::Tensor place_b2 = count_b1 + torch::arange(2, count_b1.options());
  recent = all.gather(1, place_b2.unsqueeze(2).expand({-1, -1, all.size(2)}));
  return convolved;
}

torch::Tensor HspmnBlockImpl::reflexive_in_parts(const torch::Tensor& x_bSC,
                                                 const DecoderPass& pass) {
  const int64_t S = x_bSC.size(1), part = std::max<int64_t>(1, kMlpTokens / x_bSC.size(0));
  torch::Tensor y = torch::empty_like(x_bSC), before;
  for (int64_t first = 0; first < S; first += part) {
    const int64_t count = std::min(part, S - first);
    const torch::Tensor x = x_bSC.narrow(1, first, count).contiguous();
    const torch::Tensor u = mlp_norm_->forward(x);
    torch::Tensor target = y.narrow(1, first, count);
    at::add_out(target, x, feed_forward_.forward(conv_->forward(u, before), pass.step).y);
    // All parts but the last have at least two tokens.
    before = u.narrow(1, std::max<int64_t>(0, count - 2), std::min<int64_t>(2, count)).clone();
  }
  return y;
}

BlockOutput HspmnBlockImpl::reflexive(const torch::Tensor& x_bSC, const DecoderPass& pass) {
  const int64_t tokens = x_bSC.size(0) * x_bSC.size(1);
  const bool is_long = tokens > kMlpTokens && x_bSC.size(0) <= kMlpTokens / 2;
  // Not in training: a forward pass must have the bits of its recomputation.
  if (!at::GradMode::is_enabled() && !pass.step.training && pass.decoding == nullptr &&
      feed_forward_.is_dense() && is_long) {
    return {reflexive_in_parts(x_bSC, pass), {}, {}};
  }
  const NormedBranch x = mlp_norm_->branch(x_bSC);
  BlockOutput output = feed_forward_.forward(convolve(x.normed, pass), pass.step);
  output.y = x.residual + output.y;
  return output;
}

torch::Tensor HspmnBlockImpl::attend_densely(const torch::Tensor& u_bSC,
                                             const DecoderPass& pass) const {
  if (pass.decoding == nullptr) return dense_attention_->forward(u_bSC, pass.rotation, pass.step);
  const auto& [step, cache] = *pass.decoding;
  return dense_attention_->decode(u_bSC, pass.rotation, cache, step);
}

torch::Tensor HspmnBlockImpl::limits(const DecoderPass& pass) const {
  if (sizes_.is_causal) return pass.position_bS;
  if (!pass.is_token_bS.defined())
    return torch::full_like(pass.position_bS, pass.position_bS.size(1) - 1);
  return (pass.is_token_bS.sum(1, /*keepdim=*/true) - 1).clamp_min(0).expand_as(pass.position_bS);
}

HspmnBlockImpl::SparseRows HspmnBlockImpl::attend_sparsely(const torch::Tensor& u_bSC,
                                                           const DecoderPass& pass) {
  const GateState state = pass.decoding ? pass.decoding->cache.gate_b2 : GateState();
  OpenTokens open = gate_->open({u_bSC, pass.position_bS, pass.is_token_bS, pass.step, state});
  SparseAttentionImpl::KeyValue keys = attention_->keys_of(u_bSC, pass.rotation);
  if (pass.decoding != nullptr) {
    const auto& [step, cache] = *pass.decoding;
    step.append(keys.key_bMSH, cache.key_bNPH);
    step.append(keys.value_bMSH, cache.value_bNPH);
    keys = {cache.key_bNPH.narrow(2, 0, step.end()), cache.value_bNPH.narrow(2, 0, step.end())};
  }
  torch::Tensor y_RC = attention_->forward(u_bSC, keys, open, limits(pass), pass.rotation);
  if (open.weight_R.defined()) {
    y_RC = y_RC * open.weight_R.unsqueeze(1).to(y_RC.scalar_type());
  }
  return {std::move(open), std::move(y_RC)};
}

BlockOutput HspmnBlockImpl::forward(const torch::Tensor& x_bSC, const DecoderPass& pass) {
  if (stream_ == ContextualStream::kNone) return reflexive(x_bSC, pass);
  // The contextual stream first, so that without gradients its tensors are freed before the other.
  NormedBranch x = attention_norm_->branch(x_bSC);
  if (stream_ == ContextualStream::kDense) {
    const torch::Tensor attended_bSC = attend_densely(x.normed, pass);
    x.normed.reset();
    BlockOutput output = reflexive(x.residual, pass);
    output.y = output.y + attended_bSC;
    return output;
  }
  const SparseRows attended = attend_sparsely(x.normed, pass);
  x.normed.reset();
  BlockOutput output = reflexive(x.residual, pass);
  torch::Tensor y = output.y.flatten(0, 1);
  y = at::GradMode::is_enabled() ? y.index_add(0, attended.open.row_R, attended.y_RC)
                                 : y.index_add_(0, attended.open.row_R, attended.y_RC);
  output.y = y.view_as(output.y);
  output.auxiliary_loss = add_loss(output.auxiliary_loss, attended.open.auxiliary_loss);
  if (!pass.step.training) output.is_open_bS = attended.open.is_open_bS;
  return output;
}

KeyValueCache::Layer HspmnBlockImpl::make_cache(int64_t b, int64_t capacity,
                                                const torch::TensorOptions& options) const {
  const SparseAttentionImpl::Sizes& heads = sizes_.attention;
  KeyValueCache::Layer layer;
  const int64_t kept = stream_ == ContextualStream::kNone ? 0 : heads.kv_heads;
  const std::vector<int64_t> sizes{b, kept, capacity, heads.width / heads.heads};
  layer.key_bNPH = torch::zeros(sizes, options);
  layer.value_bNPH = torch::zeros(sizes, options);
  layer.recent_b2D = torch::zeros({b, 2, heads.width}, options);
  if (gate_) layer.gate_b2 = gate_->make_state(b);
  return layer;
}

void HspmnBlockImpl::list_products(double rows, ProductList& list) const {
  std::vector<std::shared_ptr<torch::nn::Module>> parts = children();
  if (attention_) parts.pop_back();  // the last one, of which only open tokens take queries
  for (const auto& part : parts) list.visit(*part, rows);
  if (!attention_) return;
  const double open = gate_->open_tokens(static_cast<int64_t>(rows));
  const double pairs = open * (sizes_.is_causal ? rows : 2 * rows);
  list.visit(*attention_->query, open);
  list.visit(*attention_->key_value, rows);
  list.between(pairs * static_cast<double>(sizes_.place.width));
  list.visit(*attention_->proj, open);
}

}  // namespace shoal
