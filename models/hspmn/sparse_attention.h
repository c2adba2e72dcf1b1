#pragma once

#include <torch/types.h>

#include <cstdint>

#include "models/decoder/rotary.h"
#include "models/hspmn/token_gate.h"
#include "runtime/module/linear.h"
#include "runtime/module/module.h"

// b sequences  S tokens  C width  N heads  M heads of keys and values  H head width = C / N
// R tokens that attend, over all sequences
namespace shoal {

/// Attention for selected tokens (SQDK, sparse queries on dense keys): keys and values are computed
/// for every token, queries and output projection for open tokens only, those that a gate selects.
/// Query head n reads key and value head n M / N. Source: HSPMN v2.1 (Jędryczko 2025), section 3.2.
///
/// Parameters: query.weight, proj.weight [C, C]; key_value.weight [2 M H, C], keys before values.
class SparseAttentionImpl : public ModuleBase {
 public:
  struct Sizes {
    int64_t width = 0, heads = 0, kv_heads = 0;
    Init weight = {}, proj = {};
  };
  SparseAttentionImpl(const Sizes& sizes, const torch::TensorOptions& options);

  /// Keys and values of every token, [b, M, S, H] each; `rotation` is applied to keys.
  struct KeyValue {
    torch::Tensor key_bMSH, value_bMSH;
  };
  KeyValue keys_of(const torch::Tensor& u_bSC, const Rotation& rotation) const;
  /// Attention outputs [R, C] of the open tokens, each over keys 0 to its limit_bS, inclusive.
  torch::Tensor forward(const torch::Tensor& u_bSC, const KeyValue& keys, const OpenTokens& open,
                        const torch::Tensor& limit_bS, const Rotation& rotation) const;

  Linear query{nullptr}, key_value{nullptr}, proj{nullptr};

 private:
  Sizes sizes_;
};
TORCH_MODULE(SparseAttention);

}  // namespace shoal
