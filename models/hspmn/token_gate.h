#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/hspmn/gate_math.h"
#include "parallel/comm/build_context.h"
#include "runtime/module/after_step.h"
#include "runtime/module/module.h"
#include "runtime/random/step_context.h"
#include "runtime/recipe/config.h"

// b sequences on this rank  S tokens  D width  R tokens that attend, of all sequences
namespace shoal {

/// Noise on the logits while training.
enum class GateNoise {
  kLogistic,  ///< a gate is open with probability sigma(logit), as the rate loss counts it
  kGumbel,    ///< one Gumbel draw, as in the paper: 1 - exp(-exp(logit)), 0.63 at logit 0
  kNone,
};

template <>
struct EnumNames<GateNoise> {
  static constexpr std::array names{std::pair{GateNoise::kLogistic, "logistic"},
                                    std::pair{GateNoise::kGumbel, "gumbel"},
                                    std::pair{GateNoise::kNone, "none"}};
};

/// Which tokens attend.
enum class GateSelection {
  kThreshold,  ///< those above a threshold that follows the logits' quantile; causal
  kTopK,       ///< the highest of a sequence, which depend on its later tokens
  kPredictor,  ///< while training top_k; else those that a predictor of top_k's choice accepts
  kRandom,     ///< by a draw for token id and position: what a learned gate is compared with
};

template <>
struct EnumNames<GateSelection> {
  static constexpr std::array names{std::pair{GateSelection::kThreshold, "threshold"},
                                    std::pair{GateSelection::kTopK, "topk"},
                                    std::pair{GateSelection::kPredictor, "topk_predictor"},
                                    std::pair{GateSelection::kRandom, "random"}};
};

enum class GateTemperature { kFixed, kLearned };

template <>
struct EnumNames<GateTemperature> {
  static constexpr std::array names{std::pair{GateTemperature::kFixed, "fixed"},
                                    std::pair{GateTemperature::kLearned, "learned"}};
};

/// Keys of a token gate (recipe section `model.gate`).
struct GateOptions {
  double rate = 0.2;
  double first_rate = 0.8;
  int64_t anneal_steps = 100;
  GateSelection select = GateSelection::kThreshold;
  GateNoise noise = GateNoise::kLogistic;
  GateTemperature temperature = GateTemperature::kFixed;
  double rate_weight = 0.1;
  double entropy_weight = 0.01;
  double predictor_weight = 0.1;
  double explore_fraction = 0.02;
  int64_t anchor_every = 64;
  int64_t block = 1;
  std::optional<double> capacity;
  double threshold_decay = 0.95;

  static constexpr auto fields() {
    return std::tuple{
        field("rate", &GateOptions::rate, "share of the tokens that attend", in_range(above(0), 1)),
        field("first_rate", &GateOptions::first_rate, "that share at the first step",
              in_range(above(0), 1)),
        field("anneal_steps", &GateOptions::anneal_steps,
              "optimizer steps over which the share goes from first_rate to rate", at_least(0)),
        field("select", &GateOptions::select, "which tokens attend"),
        field("noise", &GateOptions::noise, "noise on the logits while training"),
        field("temperature", &GateOptions::temperature,
              "of the gate's gradient: 1, or learned within [0.1, 2]"),
        field("rate_weight", &GateOptions::rate_weight,
              "factor of the squared distance of the mean probability to the rate", at_least(0)),
        field("entropy_weight", &GateOptions::entropy_weight,
              "factor of the gate's mean entropy, in nats", at_least(0)),
        field("predictor_weight", &GateOptions::predictor_weight,
              "factor of the predictor's loss with select: topk_predictor", at_least(0)),
        field("explore_fraction", &GateOptions::explore_fraction,
              "share of the other tokens whose attention is computed while training, with weight "
              "0, so that their gates get gradients",
              in_range(0, 1)),
        field("anchor_every", &GateOptions::anchor_every,
              "every so many tokens one attends whatever its gate; 0: none", at_least(0)),
        field("block", &GateOptions::block,
              "tokens in a row that share the gate of their first one", at_least(1)),
        field("capacity", &GateOptions::capacity,
              "tokens of a context that may attend, as a multiple of rate times the context; the "
              "first ones do; auto: no limit",
              above(0), unset_word("auto")),
        field("threshold_decay", &GateOptions::threshold_decay,
              "of the moving average of the threshold with select: threshold",
              in_range(0, below(1)))};
  }
  void validate(Problems& problems) const;
  /// Rules that need the tokens of a context; `path` leads to the section.
  void check(const std::string& path, int64_t context, bool is_causal, Problems& problems) const;
  int64_t anchors_in(int64_t context) const {
    return anchor_every == 0 ? 0 : (context + anchor_every - 1) / anchor_every;
  }
  /// Tokens beside the anchors that may attend; none: no limit.
  std::optional<int64_t> most_in(int64_t context) const;
};

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
  torch::Tensor auxiliary_loss;  ///< this rank's share of the step; undefined unless training
  torch::Tensor is_open_bS;      ///< bool: attends with a weight of 1
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
/// l = w u + b, in float32 (float64 of a float64 model). While training, a token's gate is open if
/// l + noise is above the threshold, and its attention is weighted by straight_through of it; in
/// evaluation it is open if l is above it. The threshold is a moving average of the quantile of
/// logits that leaves the wanted rate above it, of the noisy ones while training: so both rates are
/// the wanted one. Anchors are open, without a gradient, and count in no rate.
///
/// Noise and exploration are keyed by global token ids. Parameters: weight [D], bias [1]; with a
/// learned temperature log_temperature [1]; with a predictor predictor_weight [D] and
/// predictor_bias [1]. Buffers: threshold, noisy_threshold, num_updates.
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
  /// Of the last optimizer step that was not skipped; nothing before it.
  std::optional<GateReport> report() const;

 private:
  struct Decision;
  Decision decide(const GateInput& input) const;
  /// Before anchors, blocks and capacity.
  torch::Tensor choose(const Decision& decision, const GateInput& input) const;
  torch::Tensor top_k(const Decision& decision, double rate) const;
  torch::Tensor draw_random(const GateInput& input, double rate) const;
  torch::Tensor predictor_logits(const GateInput& input) const;
  torch::Tensor noise_of(const GateInput& input) const;
  /// Of each token: that of the first token of its block.
  torch::Tensor of_block(const torch::Tensor& value_bS, const GateInput& input) const;
  /// Keeps the first tokens that there is room for, and updates the state.
  void limit(Decision& decision, const GateInput& input) const;
  torch::Tensor explored(const Decision& decision, const GateInput& input) const;
  torch::Tensor losses(const Decision& decision, const GateInput& input) const;
  void count(const Decision& decision, const GateInput& input);
  void update(const torch::Tensor& threshold, const torch::Tensor& counts) const;
  double rate_at(const StepContext& step) const;
  bool has_threshold() const { return options_.select == GateSelection::kThreshold; }

  GateOptions options_;
  RateAnnealing annealing_;
  int64_t context_;
  std::string path_;
  RankGrid* grid_;
  torch::Tensor weight_D_, bias_, log_temperature_, predictor_weight_D_, predictor_bias_;
  torch::Tensor threshold_, noisy_threshold_, num_updates_;
  torch::Tensor counts_;  ///< float64, of counted_step_
  int64_t counted_step_ = -1;
  torch::Tensor reported_;  ///< the counts of all ranks of the last step that was not skipped
  int64_t reported_step_ = -1;
};
TORCH_MODULE(TokenGate);

}  // namespace shoal
