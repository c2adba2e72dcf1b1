#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/hspmn/gate_math.h"
#include "models/hspmn/gate_options.h"
#include "parallel/comm/build_context.h"
#include "runtime/module/after_step.h"
#include "runtime/module/module.h"
#include "runtime/random/step_context.h"

// b sequences on this rank  S tokens  D width  R tokens that attend, of all sequences
namespace shoal {

/// What a gate remembers of each sequence while it is decoded, int64 [b, 2]: whether the current
/// block of tokens is open, and how many tokens beside the anchors have attended.
using GateState = torch::Tensor;

/// Tokens that a gate decides about.
struct GateInput {
  const torch::Tensor& u_bSD;        ///< normed
  const torch::Tensor& position_bS;  ///< int64, of each token in its sequence
  const torch::Tensor& is_token_bS;  ///< bool, false: padding; undefined: all are tokens
  const StepContext& step;
  GateState state = {};  ///< updated in place; undefined: the sequences begin here
};

/// The tokens whose attention is computed.
struct OpenTokens {
  torch::Tensor row_R;             ///< int64, ascending: their places among all b S
  std::vector<int64_t> offset_b1;  ///< sequence i has the rows offset_b1[i] to offset_b1[i + 1] - 1
  /// Of their attention's output: 1, or 0 of explored tokens; undefined: 1 of all.
  torch::Tensor weight_R;
  torch::Tensor
      auxiliary_loss;  ///< this rank's share of the step; undefined unless training, and at random
  torch::Tensor is_open_bS;  ///< bool: attends with a weight of 1
};

/// What a gate did in the last optimizer step, over all ranks. Shares are of the tokens beside the
/// anchors.
struct GateReport {
  std::string layer;
  double rate = 0.0;       ///< share that attended
  double target = 0.0;     ///< the rate it is trained for
  double probability = 0;  ///< mean of sigma(logit)
  double entropy = 0.0;    ///< mean of the gate's entropy, in nats
  double threshold = 0.0;
  double dropped = 0.0;  ///< share whose gate was open, and for which there was no capacity
  std::vector<double> rate_by_position = {};  ///< in kPositionBins equal parts of the context
};

/// Decides for each token whether it attends: a linear gate with straight-through gradients.
///
/// l = w u + b of the first token of a block, in float32 (float64 of a float64 model). With
/// `select: threshold`, while training a gate is open if l + noise is above the threshold, and its
/// attention is weighted by straight_through of it; in evaluation it is open if l is above it. The
/// threshold is a moving average of the quantile of logits that leaves the wanted rate above it, of
/// the noisy ones while training: so both rates are the wanted one. The rate loss is of sigma(l),
/// as in the paper, which knows no threshold. With top k the highest l + noise are open; at random
/// none of this is computed. Anchors are open, without a gradient, and count in no rate of this
/// class.
///
/// Noise and exploration are keyed by global token ids. Parameters: weight [D], bias [1], none at
/// random; with a learned temperature log_temperature [1]; with a predictor predictor_weight [D]
/// and predictor_bias [1]. Buffers of a threshold: threshold, noisy_threshold, num_updates.
/// Source: HSPMN v2.1, section 3.1 and equations 1 to 3; the threshold after Raposo et al. 2024
/// (Mixture-of-Depths), section 3.5, and expert thresholds, which keep training and decoding alike.
class TokenGateImpl : public ModuleBase, public AfterStep {
 public:
  static constexpr int64_t kPositionBins = 16;

  /// `path`: `blocks.3.gate`. `context`: tokens of a sequence at most.
  TokenGateImpl(const GateOptions& options, int64_t width, int64_t context, const std::string& path,
                const BuildContext& build);
  /// Collective while training. b may be 0.
  OpenTokens open(const GateInput& input);
  void after_step() override;
  GateState make_state(int64_t b) const;
  const std::string& path() const { return path_; }
  bool is_learned() const { return !is_random(); }
  /// Tokens of a sample that attend while training, as the rate says, with those that explore.
  double open_tokens(int64_t tokens) const;
  /// Of the last optimizer step that was not skipped; nothing before it.
  std::optional<GateReport> report() const;

 private:
  struct Decision;
  Decision decide(const GateInput& input) const;
  // Of the first token of each token's block: what follows from tokens of former calls is not
  // specified.
  torch::Tensor of_block(const torch::Tensor& value_bS, const GateInput& input) const;
  torch::Tensor logits_of(const GateInput& input) const;
  torch::Tensor predictor_logits(const GateInput& input) const;
  torch::Tensor noise_of(const GateInput& input) const;
  torch::Tensor soft_gates(const Decision& decision, const torch::Tensor& noise) const;
  /// Before anchors and capacity.
  torch::Tensor choose(const Decision& decision, const GateInput& input) const;
  torch::Tensor top_k(const Decision& decision, const GateInput& input) const;
  torch::Tensor draw_random(const GateInput& input) const;
  /// Keeps the first tokens that there is room for.
  void apply_capacity(Decision& decision, const GateInput& input) const;
  void remember(const Decision& decision, const GateState& state) const;
  /// Some of the closed tokens. Gates get the gradients that these have, not divided by their
  /// fraction: their mean has the direction of all closed gates' gradients, and little variance.
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
  RateAnnealing annealing_;
  int64_t context_;
  std::string path_;
  RankGrid* grid_;
  torch::Device device_;
  torch::Tensor weight_D_, bias_, log_temperature_, predictor_weight_D_, predictor_bias_;
  torch::Tensor threshold_, noisy_threshold_, num_updates_;
  torch::Tensor counts_;  ///< float64, of counted_step_
  int64_t counted_step_ = -1;
  torch::Tensor reported_;  ///< the counts of all ranks of the last step that was not skipped
  int64_t reported_step_ = -1;
};
TORCH_MODULE(TokenGate);

}  // namespace shoal
