#pragma once

#include <torch/types.h>

#include <cstdint>
#include <limits>
#include <vector>

// b sequences  S new tokens per sequence  N heads of keys and values  P capacity of the cache
// E positions in use, with new tokens  H head width  D width
namespace shoal {

/// KV cache: keys and values of each sequence's earlier tokens, for all layers, so that decoding
/// computes each token once. Sequences of a batch may differ in length.
struct KeyValueCache {
  struct Layer {
    /// Rows from length_b on are masked out, but must be finite.
    torch::Tensor key_bNPH, value_bNPH;
    /// Input of the layer's causal convolution, if any, for the last two tokens; at first zeros.
    torch::Tensor recent_b2D = {};
    /// int64, state of the layer's token gate, which selects the tokens that attend (HSPMN v2.1);
    /// columns as GateState in models/hspmn/token_gate.h. Undefined without a gate.
    torch::Tensor gate_b2 = {};
  };
  std::vector<Layer> layers;
  std::vector<int64_t> length_b;  ///< cached tokens of each sequence
  /// P. A model without layers caches nothing, so any number of tokens fits.
  int64_t capacity() const {
    return layers.empty() ? std::numeric_limits<int64_t>::max() : layers[0].key_bNPH.size(2);
  }
};

/// Up to S new tokens of each sequence.
struct NewTokens {
  torch::Tensor token_bS;
  /// Number of new tokens of each sequence; later columns are padding. Empty: no padding.
  std::vector<int64_t> count_b = {};
};

/// Positions and mask for a decoding pass: new token s of sequence b has position length_b + s.
class DecodeStep {
 public:
  /// TORCH_CHECK that the new tokens fit into the cache.
  DecodeStep(const KeyValueCache& cache, const NewTokens& tokens);
  /// New tokens of each sequence, [b], on the host.
  const std::vector<int64_t>& count_b() const { return count_b_; }
  /// Number of new tokens of each sequence, int64 [b, 1] on the model's device.
  const torch::Tensor& count_b1() const { return count_b1_; }
  /// Positions of the new tokens, int64 [b, S].
  const torch::Tensor& position_bS() const { return position_bS_; }
  /// True if the cache was empty, so that new tokens attend to each other only.
  bool is_first() const { return is_first_; }
  /// E, the number of positions in use.
  int64_t end() const { return end_; }
  /// bool [b, 1, S, E]: true where a new token attends to a position. Undefined if is_first(): use
  /// plain causal attention. Also undefined if each new token attends to all E positions.
  const torch::Tensor& mask_b1SE() const { return mask_b1SE_; }
  /// Writes keys or values of the new tokens into `held_bNPH`, the layer's key_bNPH or value_bNPH.
  void append(const torch::Tensor& new_bNSH, const torch::Tensor& held_bNPH) const;
  /// Adds the new tokens to cache.length_b. Call once every layer has appended them.
  void advance(KeyValueCache& cache) const;

 private:
  std::vector<int64_t> begin_b_, count_b_;
  bool is_first_ = false, is_even_ = false;
  int64_t end_ = 0;
  torch::Tensor count_b1_, position_bS_, mask_b1SE_;
};

}  // namespace shoal
