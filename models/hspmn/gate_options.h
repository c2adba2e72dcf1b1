#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>

#include "runtime/options/config.h"

namespace shoal {

/// Distribution of the noise added to gate logits in training.
enum class GateNoise {
  kLogistic,  ///< a gate with threshold 0 is open with probability sigma(logit)
  kGumbel,    ///< one Gumbel draw, as in the paper; probability 1 - exp(-exp(logit))
  kNone,
};

template <>
inline constexpr std::array kEnumWords<GateNoise>{"logistic", "gumbel", "none"};

/// How a gate selects the tokens that attend.
enum class GateSelection {
  kThreshold,  ///< logits above a threshold that tracks a quantile of the logits; causal
  kTopK,       ///< the highest logits of a sequence; depends on later tokens, so not causal
  kPredictor,  ///< training: as kTopK; evaluation: a causal predictor of the choice of kTopK
  kRandom,     ///< draws keyed by vocabulary id and position; a baseline for learned gates
};

template <>
inline constexpr std::array kEnumWords<GateSelection>{"threshold", "topk", "topk_predictor",
                                                      "random"};

/// Temperature of the gradient, that of sigma((logit - threshold + noise) / temperature).
enum class GateTemperature { kFixed, kLearned };  // kFixed: 1

template <>
inline constexpr std::array kEnumWords<GateTemperature>{"fixed", "learned"};

/// Options of a token gate (HSPMN v2.1; section `model.gate`). The gate selects the tokens that
/// attend: only these make a query and get an attention output, but all tokens are keys and values.
/// Anchors, one in `anchor_every` tokens, always attend. A gate's probability is sigma(logit),
/// without noise, threshold and temperature. keeps_evaluation() marks options of training only.
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
        field("rate", &GateOptions::rate, "fraction of tokens that attend", in_range(above(0), 1)),
        field("first_rate", &GateOptions::first_rate, "target fraction at the first step",
              in_range(above(0), 1), keeps_evaluation()),
        field("anneal_steps", &GateOptions::anneal_steps,
              "optimizer steps over which the target is annealed from first_rate to rate",
              at_least(0), keeps_evaluation()),
        field("select", &GateOptions::select, "which tokens attend"),
        field("noise", &GateOptions::noise, "noise on the logits during training",
              keeps_evaluation()),
        field("temperature", &GateOptions::temperature,
              "temperature of the gate's gradient: 1, or learned in [0.1, 2]", keeps_evaluation()),
        field("rate_weight", &GateOptions::rate_weight,
              "weight of the squared distance between mean probability and rate", at_least(0),
              keeps_evaluation()),
        field("entropy_weight", &GateOptions::entropy_weight,
              "weight of the gate's mean entropy, in nats", at_least(0), keeps_evaluation()),
        field("predictor_weight", &GateOptions::predictor_weight,
              "weight of the predictor's loss, with select: topk_predictor", at_least(0),
              keeps_evaluation()),
        field("explore_fraction", &GateOptions::explore_fraction,
              "fraction of the tokens with closed gates whose attention is computed in training, "
              "with weight 0, so that their gates receive gradients",
              in_range(0, 1), keeps_evaluation()),
        field("anchor_every", &GateOptions::anchor_every,
              "one of every so many tokens attends whatever its gate; 0: none", at_least(0)),
        field("block", &GateOptions::block,
              "number of consecutive tokens that share the gate of the first", at_least(1)),
        field("capacity", &GateOptions::capacity,
              "at most capacity x rate x model.context tokens of a sequence attend, including "
              "anchors; training uses the rate of the step; the gates of later tokens are closed; "
              "needs select: threshold; auto: no limit",
              above(0), unset_word("auto")),
        field("threshold_decay", &GateOptions::threshold_decay,
              "decay of the moving average that is the threshold, with select: threshold",
              in_range(0, below(1)), keeps_evaluation())};
  }
  void validate(Problems& problems) const;
  /// The target rate at an optimizer step: linear from first_rate to rate, then constant.
  double rate_at(int64_t step) const;
  /// Throws ConfigError if more tokens of a context are anchors than may attend at `rate`.
  void check_context(int64_t context) const;
  /// Number of anchors among the first `context` tokens.
  int64_t anchors_in(int64_t context) const {
    return anchor_every == 0 ? 0 : (context + anchor_every - 1) / anchor_every;
  }
  /// Number of tokens besides anchors that may attend at this target rate; nullopt: no limit.
  std::optional<int64_t> most_in(int64_t context, double at_rate) const;
};

}  // namespace shoal
