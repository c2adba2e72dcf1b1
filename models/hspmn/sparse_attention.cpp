#include "models/hspmn/sparse_attention.h"

#include <cmath>
#include <optional>
#include <vector>

#include "models/decoder/causal_attention.h"
#include "models/hspmn/kernels/sparse_query_attention.h"

// b sequences  S tokens  C width  N heads  M heads of keys and values  H head width = C / N
// R tokens that attend, of all sequences
namespace shoal {
namespace {

/// The angles of the tokens at `row_R` among b sequences of S, [R, H / 2].
Rotation rotation_of_rows(const Rotation& rotation, const torch::Tensor& row_R, int64_t S) {
  if (!rotation.cos.defined()) return {};
  const auto rows = [&](const torch::Tensor& angle) {
    return angle.dim() == 2 ? angle.index_select(0, row_R.remainder(S))
                            : angle.flatten(0, 2).index_select(0, row_R);
  };
  return {rows(rotation.cos), rows(rotation.sin)};
}

}  // namespace

SparseAttentionImpl::SparseAttentionImpl(const Sizes& sizes, const torch::TensorOptions& options)
    : sizes_(sizes) {
  TORCH_CHECK(sizes.width % sizes.heads == 0 && sizes.heads % sizes.kv_heads == 0, sizes.heads,
              " heads and ", sizes.kv_heads, " of keys and values do not fit a width of ",
              sizes.width);
  const int64_t kv_width = sizes.width / sizes.heads * sizes.kv_heads;
  const auto add = [&](const char* name, int64_t out, const Init& init) {
    return register_module(name, Linear(sizes.width, out, options, init, std::nullopt));
  };
  query = add("query", sizes.width, sizes.weight);
  key_value = add("key_value", 2 * kv_width, sizes.weight);
  proj = add("proj", sizes.width, sizes.proj);
}

SparseAttentionImpl::KeyValue SparseAttentionImpl::keys_of(const torch::Tensor& u_bSC,
                                                           const Rotation& rotation) const {
  const int64_t H = sizes_.width / sizes_.heads;
  const std::vector<torch::Tensor> part = key_value->forward(u_bSC).chunk(2, /*dim=*/2);
  return {rotate(split_heads(part[0], H), rotation), split_heads(part[1], H)};
}

torch::Tensor SparseAttentionImpl::forward(const torch::Tensor& u_bSC, const KeyValue& keys,
                                           const OpenTokens& open, const torch::Tensor& limit_bS,
                                           const Rotation& rotation) const {
  const int64_t H = sizes_.width / sizes_.heads, R = open.row_R.size(0);
  const torch::Tensor u_RC = u_bSC.flatten(0, 1).index_select(0, open.row_R);
  const torch::Tensor query_NRH = split_heads(query->forward(u_RC).unsqueeze(0), H);
  const torch::Tensor turned_RNH =
      rotate(query_NRH, rotation_of_rows(rotation, open.row_R, u_bSC.size(1)))
          .squeeze(0)
          .transpose(0, 1);
  const SparseQueries queries{limit_bS.flatten().index_select(0, open.row_R), open.offset_b1};
  const double scale = 1.0 / std::sqrt(static_cast<double>(H));
  const torch::Tensor y_RNH =
      sparse_query_attention(turned_RNH, keys.key_bMSH, keys.value_bMSH, queries, scale);
  return proj->forward(y_RNH.reshape({R, sizes_.width}));
}

}  // namespace shoal
