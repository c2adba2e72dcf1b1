#pragma once

#include <torch/types.h>

#include <cstdint>
#include <limits>
#include <vector>

// b sequences  S new tokens of each  N heads of keys and values  P positions  H head width E
// positions in use, new tokens included  D width
namespace shoal {

/// Keys and values of the tokens that each sequence has so far, a pair for each layer, so that no
/// token is computed twice. Sequences of a batch may differ in length.
struct KeyValueCache {
  struct Layer {
    /// Rows from length_b on are masked; they must be finite.
    torch::Tensor key_bNPH, value_bNPH;
    /// For blocks with a causal convolution, its input for the last two tokens, zeros before the
    /// first one.
    torch::Tensor recent_b2D = {};
    /// For blocks with a token gate, its GateState.
    torch::Tensor gate_b2 = {};
  };
  std::vector<Layer> layers;
  std::vector<int64_t> length_b;  ///< number of cached tokens of each sequence
  /// P; unlimited without layers.
  int64_t capacity() const {
    return layers.empty() ? std::numeric_limits<int64_t>::max() : layers[0].key_bNPH.size(2);
  }
};

/// Up to S new tokens of each sequence.
struct NewTokens {
  torch::Tensor token_bS;
  /// Number of new tokens of each sequence, followed by padding up to S; empty: S for all.
  std::vector<int64_t> count_b = {};
};

/// Positions of S new tokens of each sequence: token s of sequence b has position length_b + s.
class DecodeStep {
 public:
  /// TORCH_CHECK that the new tokens fit into the cache.
  DecodeStep(const KeyValueCache& cache, const NewTokens& tokens);
  /// Number of new tokens of each sequence, [b], on the host.
  const std::vector<int64_t>& count_b() const { return count_b_; }
  /// Number of new tokens of each sequence, int64 [b, 1] on the model's device.
  const torch::Tensor& count_b1() const { return count_b1_; }
  /// Position of each new token, int64 [b, S].
  const torch::Tensor& position_bS() const { return position_bS_; }
  /// True if the cache is empty, so that new tokens see only each other.
  bool is_first() const { return is_first_; }
  /// Number E of positions in use.
  int64_t end() const { return end_; }
  /// bool [b, 1, S, E]: true for the first E positions that a token sees; undefined: all.
  const torch::Tensor& mask_b1SE() const { return mask_b1SE_; }
  /// Writes the new tokens' keys or values into a tensor of the cache.
  void append(const torch::Tensor& new_bNSH, const torch::Tensor& held_bNPH) const;
  /// Adds the new tokens to length_b, after every layer has appended them.
  void advance(KeyValueCache& cache) const;

 private:
  std::vector<int64_t> begin_b_, count_b_;
  bool is_first_ = false, is_even_ = false;
  int64_t end_ = 0;
  torch::Tensor count_b1_, position_bS_, mask_b1SE_;
};

}  // namespace shoal
