#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shoal {

/// A sequence that was looked at. Without its padding: all vectors have one entry a token.
struct GatedSample {
  std::string name;
  std::vector<int64_t> token;
  std::vector<bool> is_labelled;           ///< empty: no token or every token has a label
  std::vector<std::vector<bool>> is_open;  ///< for each gate: whether the token attends
};

/// What one gate did over all tokens looked at, anchors included.
///
/// Mutual information is the plug-in estimate in nats: of a gate G and a token's X with counts
/// n(g, x) among n tokens, I(G; X) = sum over g, x of n(g, x) / n * ln(n(g, x) n / (n(g) n(x))).
/// Chance alone makes it about (values of X - 1) / 2n of independent ones, so look at many tokens.
struct GateNumbers {
  static constexpr int64_t kPositionBins = 16;

  double rate = 0.0;                        ///< share of the tokens that attend
  std::optional<double> recall;             ///< that of the labelled ones; none: without them
  double token_information = 0.0;           ///< I(gate; token id)
  std::optional<double> label_information;  ///< I(gate; whether the token is labelled)
  /// The rate in equal parts of the context; none: no token is there.
  std::array<std::optional<double>, kPositionBins> rate_by_position;
};

/// n(g, x) by x: of closed and of open gates.
using GateCounts = std::map<int64_t, std::array<int64_t, 2>>;

/// The formula above; 0 without counts.
double mutual_information(const GateCounts& counts);

/// Of gate `gate`, for a model that reads `context` tokens at most. All samples have the gate;
/// there is at least one token.
GateNumbers gate_numbers(const std::vector<GatedSample>& samples, size_t gate, int64_t context);

}  // namespace shoal
