#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

/// One analysed sequence, without padding: each vector has one entry per token.
struct GatedSample {
  std::string name;
  std::vector<int64_t> token;
  std::vector<bool> is_labelled;           ///< empty if no token or every token has a label
  std::vector<std::vector<bool>> is_open;  ///< for each gate: true where the token attends
};

/// Statistics of one gate over all analysed tokens, including anchors.
///
/// Mutual information is the plug-in estimate in nats: for a gate G and a token property X with
/// counts n(g, x) among n tokens,
/// I(G; X) = sum over g, x of n(g, x) / n * ln(n(g, x) n / (n(g) n(x))). For independent G and X
/// its bias is about (values of X - 1) / 2n, so n should be large.
struct GateNumbers {
  static constexpr int64_t kPositionBins = 16;

  double rate = 0.0;                        ///< share of tokens that attend
  std::optional<double> recall;             ///< rate of labelled tokens; unset: no labels
  double token_information = 0.0;           ///< I(gate; token id)
  std::optional<double> label_information;  ///< I(gate; token has a label)
  /// Rate in equal parts of the context; unset: no tokens in that part.
  std::array<std::optional<double>, kPositionBins> rate_by_position;
};

/// Counts n(g, x), by x: of closed gates, then of open gates.
using GateCounts = std::map<int64_t, std::array<int64_t, 2>>;

/// Mutual information by the formula above; 0 without counts.
double mutual_information(const GateCounts& counts);

/// Numbers of gate `gate`, for a model with a context of `context` tokens. All samples have the
/// gate; there is at least one token.
GateNumbers gate_numbers(const std::vector<GatedSample>& samples, size_t gate, int64_t context);

}  // namespace shoal
