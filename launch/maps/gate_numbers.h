#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

/// One sequence run through a model with token gates (HSPMN v2.1: the gate of a layer decides for
/// each token whether it attends), without padding. Vectors have one entry per token. A token's
/// label is its target in the data set; in a recall task, for example, only queries have one.
struct GatedSample {
  std::string name;                        ///< heading on the page of maps: `Prompt`
  std::vector<int64_t> token;              ///< token ids
  std::vector<bool> is_labelled;           ///< left empty if the data set labels all tokens or none
  std::vector<std::vector<bool>> is_open;  ///< [gate][token]: true where the token attends
};

/// Statistics of one gate over all tokens of the samples. Anchors, which are tokens at regular
/// positions that always attend, are counted like other tokens.
///
/// Mutual information I(G; X) of the gate G (open or closed) and a token property X, in nats, is
/// estimated from the counts n(g, x) among n tokens (plug-in estimate): I(G; X) = sum over g, x of
/// n(g, x) / n * ln(n(g, x) n / (n(g) n(x))). If G and X are independent and X takes v values, the
/// estimate is about (v - 1) / (2 n) too high, so n should be large.
struct GateNumbers {
  static constexpr int64_t kPositionBins = 16;

  double rate = 0.0;  ///< share of tokens that attend
  /// Share of labelled tokens that attend; unset: none labelled.
  std::optional<double> labelled_rate;
  double token_information = 0.0;           ///< I(gate; token id)
  std::optional<double> label_information;  ///< I(gate; is_labelled); unset: empty in all samples
  /// Rate in equal parts of the context, by position of the token; unset: no tokens there.
  std::array<std::optional<double>, kPositionBins> rate_by_position;
};

/// Numbers of tokens with a closed [0] and an open gate [1], by value of a token property.
using GateCounts = std::map<int64_t, std::array<int64_t, 2>>;

/// Mutual information of gate and property in nats, by the formula above; 0 without counts.
double mutual_information(const GateCounts& counts);

/// Computes the statistics of the gate with index `gate`. `context`: context length of the model in
/// tokens. Every sample must have is_open[gate], and there must be at least one token.
GateNumbers gate_numbers(const std::vector<GatedSample>& samples, size_t gate, int64_t context);

}  // namespace shoal
