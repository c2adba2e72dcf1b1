#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shoal {

/// An examined sequence, without its padding: all vectors have one entry a token.
struct GatedSample {
  std::string name;
  std::vector<int64_t> token;
  std::vector<bool> is_labelled;           ///< empty if no token or every token has a label
  std::vector<std::vector<bool>> is_open;  ///< for each gate and token: true if it attends
};

/// Statistics of one gate over all examined tokens, anchors included.
///
/// Mutual information is the plug-in estimate in nats: for a gate G and a token's X with counts
/// n(g, x) among n tokens, I(G; X) = sum over g, x of n(g, x) / n * ln(n(g, x) n / (n(g) n(x))).
/// For independent ones chance alone gives about (values of X - 1) / 2n, so use many tokens.
struct GateNumbers {
  static constexpr int64_t kPositionBins = 16;

  double rate = 0.0;             ///< share of the tokens that attend
  std::optional<double> recall;  ///< share of the labelled tokens that attend; unset without labels
  double token_information = 0.0;           ///< I(gate; token id)
  std::optional<double> label_information;  ///< I(gate; 1 if the token is labelled)
  /// The rate in equal parts of the context; unset without tokens there.
  std::array<std::optional<double>, kPositionBins> rate_by_position;
};

/// n(g, x) by x, for closed and open gates.
using GateCounts = std::map<int64_t, std::array<int64_t, 2>>;

/// Mutual information by the formula above; 0 without counts.
double mutual_information(const GateCounts& counts);

/// Numbers of gate `gate`, for a model with a context of `context` tokens. All samples have the
/// gate; there is at least one token.
GateNumbers gate_numbers(const std::vector<GatedSample>& samples, size_t gate, int64_t context);

}  // namespace shoal
