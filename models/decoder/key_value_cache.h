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
    /// For blocks with a causal convolution, its input for the last two tokens, at first zeros.
    torch::Tensor recent_b2D = {};
    /// For blocks with a token gate (HSPMN v2.1), two int64: 1 or 0, whether the current block of
    /// tokens may attend; and how many tokens have attended, without anchors (which always do).
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
  /// Number of new tokens of each sequence, the rest of S is padding; empty: no padding.
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
  /// bool [b, 1, S, E]: true where a new token attends to a position. Undefined without need of a
  /// mask: if is_first(), where causal attention does, or if new tokens attend to all positions.
  const torch::Tensor& mask_b1SE() const { return mask_b1SE_; }
  /// Writes keys, values or inputs of the new tokens into a tensor of the cache.
  void append(const torch::Tensor& new_bNSH, const torch::Tensor& held_bNPH) const;
  /// Adds the new tokens to the cache's length, after every layer has appended them.
  void advance(KeyValueCache& cache) const;

 private:
  std::vector<int64_t> begin_b_, count_b_;
  bool is_first_ = false, is_even_ = false;
  int64_t end_ = 0;
  torch::Tensor count_b1_, position_bS_, mask_b1SE_;
};

}  // namespace shoal
