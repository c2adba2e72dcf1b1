#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/hspmn/gate_math.h"
#include "models/hspmn/gate_options.h"
#include "moe/build_context.h"
#include "runtime/module/module.h"
#include "runtime/module/sparse_place.h"
#include "runtime/random/step_context.h"

// b sequences on this rank  S tokens  D width  R tokens of all sequences with computed attention
namespace shoal {

/// State of a gate for sequences being decoded, int64 [b, 2]: 1 if the last token's block (a run of
/// tokens that share a gate) is open, else 0; number of open tokens so far, without anchors.
using GateState = torch::Tensor;

/// The tokens that a gate decides on.
struct GateInput {
  const torch::Tensor& u_bSD;        ///< normed activations
  const torch::Tensor& position_bS;  ///< int64, of each token in its sequence
  const torch::Tensor& is_token_bS;  ///< bool, false: padding; undefined: no padding
  const StepContext& step;
  GateState state = {};  ///< updated in place; undefined: the sequences start here
};

/// Output of a gate: the tokens whose attention is computed.
struct OpenTokens {
  torch::Tensor row_R;             ///< int64, ascending: their indices among all b S tokens
  std::vector<int64_t> offset_b1;  ///< sequence i has the rows offset_b1[i] to offset_b1[i + 1] - 1
  /// Factors of the attention outputs; undefined: all 1. Open tokens have 1. In training a share of
  /// the closed tokens is computed with factor 0, so that closed gates get gradients (exploring).
  torch::Tensor weight_R;
  torch::Tensor auxiliary_loss;  ///< rank's share of the loss; undefined: evaluation, random gates
  torch::Tensor is_open_bS;      ///< bool: true for tokens that attend with weight 1
};

/// A gate's statistics of the last optimizer step, over all ranks. Shares leave out anchors.
struct GateReport {
  std::string layer;
  double rate = 0.0;       ///< share of tokens that attended
  double target = 0.0;     ///< target of that share
  double probability = 0;  ///< mean of sigma(logit)
  double entropy = 0.0;    ///< mean of the gate's entropy, in nats
  double threshold = 0.0;
  double dropped = 0.0;  ///< share whose gate was open but exceeded the capacity
  std::vector<double> rate_by_position = {};  ///< rate in kPositionBins equal parts of the context
};

/// Token gate: a learned linear layer selects the tokens that attend. A block of HSPMN v2.1 calls
/// open() and multiplies its attention outputs by OpenTokens::weight_R.
///
/// A run of tokens (GateOptions::block) shares the gate of its first token, whose logit is l = w u
/// + b, in float32 (float64 in a float64 model). Training adds noise to l. GateOptions::select:
/// - threshold: a gate is open if its logit is above the moving average of the (1 - target rate)
///   quantile of logits. Training and evaluation have separate thresholds, for logits with and
///   without noise. GateOptions::capacity may limit a sequence's open tokens: it closes later ones.
/// - top k: the highest logits of a sequence are open. Causal models refuse this.
/// - top-k predictor: training as top k. A second linear layer of u is trained to predict whether a
///   token is among the top k; in evaluation this layer decides, which is causal.
/// - random: draws without gradient or loss.
/// Training multiplies attention outputs by 1 or 0, but with the gradient of sigma((l - threshold +
/// noise) / temperature) (straight-through). The rate loss uses sigma(l), as in the paper. Anchors,
/// one in anchor_every tokens, are open without a gradient and not counted in rates.
///
/// Noise and exploring tokens are keyed by (seed, path, step, global token id). Parameters, none
/// for random gates: weight [D], bias [1]; with a learned temperature log_temperature [1]; with a
/// predictor predictor_weight [D], predictor_bias [1]. Buffers of a threshold: threshold,
/// noisy_threshold, num_updates. Sources: HSPMN v2.1 (Jędryczko 2025), 3.1, equations 1 to 3;
/// threshold: Raposo et al. 2024 (Mixture-of-Depths), 3.5; Sun et al. 2026 (Expert Threshold).
class TokenGateImpl : public ModuleBase, public AfterStep, public StaysDense {
 public:
  static constexpr int64_t kPositionBins = 16;

  /// `path`: the gate's path in the model, `blocks.3.gate`. `context`: most tokens of a sequence.
  TokenGateImpl(const GateOptions& options, int64_t width, int64_t context, const std::string& path,
                const BuildContext& build);
  /// Selects the tokens that attend. Collective in training. b may be 0.
  OpenTokens open(const GateInput& input);
  void after_step() override;
  GateState make_state(int64_t b) const;
  const std::string& path() const { return path_; }
  bool is_learned() const { return !is_random(); }
  /// Expected number of a sample's tokens with computed attention in training, at the final rate.
  double open_tokens(int64_t tokens) const;
  /// Statistics of the last optimizer step that was not skipped; nullopt before the first.
  std::optional<GateReport> report() const;

 private:
  struct Decision;
  Decision decide(const GateInput& input) const;
  // Value of the first token of each token's block; unspecified if it came in an earlier call.
  torch::Tensor of_block(const torch::Tensor& value_bS, const GateInput& input) const;
  torch::Tensor logits_of(const GateInput& input) const;
  torch::Tensor predictor_logits(const GateInput& input) const;
  torch::Tensor noise_of(const GateInput& input) const;
  torch::Tensor soft_gates(const Decision& decision, const torch::Tensor& noise) const;
  /// Open gates, before anchors and capacity.
  torch::Tensor choose(const Decision& decision, const GateInput& input) const;
  torch::Tensor top_k(const Decision& decision, const GateInput& input) const;
  torch::Tensor draw_random(const GateInput& input) const;
  /// Closes gates beyond the capacity; the first tokens stay open.
  void apply_capacity(Decision& decision, const GateInput& input) const;
  void remember(const Decision& decision, const GateState& state) const;
  /// Returns where a token explores: random closed tokens, a share explore_fraction.
  torch::Tensor explored(const Decision& decision, const GateInput& input) const;
  torch::Tensor weights(const Decision& decision, const torch::Tensor& row_R) const;
  torch::Tensor losses(const Decision& decision, const GateSums& sums,
                       const GateInput& input) const;
  void count(const Decision& decision, const GateSums& sums, const GateInput& input);
  void update_threshold(torch::Tensor& threshold, const torch::Tensor& counts) const;
  double rate_at(const StepContext& step) const;
  bool has_threshold() const { return options_.select == GateSelection::kThreshold; }
  bool is_random() const { return options_.select == GateSelection::kRandom; }

  GateOptions options_;
  int64_t context_;
  std::string path_;
  RankGrid* grid_;
  torch::Device device_;
  torch::Tensor weight_D_, bias_, log_temperature_, predictor_weight_D_, predictor_bias_;
  torch::Tensor threshold_, noisy_threshold_, num_updates_;
  torch::Tensor counts_;  ///< float64, counts of counted_step_
  int64_t counted_step_ = -1;
  torch::Tensor reported_;  ///< counts of all ranks in the last step that was not skipped
  int64_t reported_step_ = -1;
};
TORCH_MODULE(TokenGate);

}  // namespace shoal
