#pragma once

#include <torch/types.h>

#include <cstdint>
#include <limits>
#include <vector>

// b sequences  S new tokens of each  N heads of keys and values  P positions  H head width
// E positions that are in use, new tokens included  D width
namespace shoal {

/// The keys and values of the tokens that each sequence has so far, a pair a layer, so that a token
/// is computed once. Sequences of a batch may differ in length.
struct KeyValueCache {
  struct Layer {
    /// Rows from length_b on are masked out; they must be finite.
    torch::Tensor key_bNPH, value_bNPH;
    /// Of blocks with a causal convolution: its input for the last two tokens, zeros before the
    /// first one.
    torch::Tensor recent_b2D = {};
    /// Of blocks with a token gate: GateState.
    torch::Tensor gate_b2 = {};
  };
  std::vector<Layer> layers;
  std::vector<int64_t> length_b;  ///< tokens held, by sequence
  /// P; without layers nothing is held, and any number of tokens fits.
  int64_t capacity() const {
    return layers.empty() ? std::numeric_limits<int64_t>::max() : layers[0].key_bNPH.size(2);
  }
};

/// Up to S more tokens of each sequence.
struct NewTokens {
  torch::Tensor token_bS;
  /// How many of its S each sequence has, the rest being padding at the end; empty: all.
  std::vector<int64_t> count_b = {};
};

/// Where S more tokens of each sequence go: token s of sequence b has position length_b + s.
class DecodeStep {
 public:
  /// TORCH_CHECK if the cache is too small.
  DecodeStep(const KeyValueCache& cache, const NewTokens& tokens);
  /// [b], on the host.
  const std::vector<int64_t>& count_b() const { return count_b_; }
  /// The same where the model is, int64 [b, 1].
  const torch::Tensor& count_b1() const { return count_b1_; }
  /// int64 [b, S].
  const torch::Tensor& position_bS() const { return position_bS_; }
  /// Whether the cache is empty, so that the new tokens see each other only.
  bool is_first() const { return is_first_; }
  /// E.
  int64_t end() const { return end_; }
  /// Which of the first E positions a token sees, bool [b, 1, S, E]; undefined: all.
  const torch::Tensor& mask_b1SE() const { return mask_b1SE_; }
  /// Writes what the new tokens have into a tensor of the cache.
  void append(const torch::Tensor& new_bNSH, const torch::Tensor& held_bNPH) const;
  /// Counts the new tokens as held, once every layer has them.
  void advance(KeyValueCache& cache) const;

 private:
  std::vector<int64_t> begin_b_, count_b_;
  bool is_first_ = false, is_even_ = false;
  int64_t end_ = 0;
  torch::Tensor count_b1_, position_bS_, mask_b1SE_;
};

}  // namespace shoal
