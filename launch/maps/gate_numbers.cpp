#include "launch/maps/gate_numbers.h"

#include <algorithm>
#include <cmath>

namespace shoal {
namespace {

std::optional<double> open_share(const std::array<int64_t, 2>& counts) {
  const int64_t total = counts[0] + counts[1];
  if (total == 0) return std::nullopt;
  return static_cast<double>(counts[1]) / static_cast<double>(total);
}

}  // namespace

double mutual_information(const GateCounts& counts) {
  std::array<double, 2> gate{};
  for (const auto& [value, count] : counts) {
    for (size_t open : {0, 1}) gate[open] += static_cast<double>(count[open]);
  }
  const double total = gate[0] + gate[1];
  double information = 0.0;
  for (const auto& [value, count] : counts) {
    const auto of_value = static_cast<double>(count[0] + count[1]);
    for (size_t open : {0, 1}) {
      const auto both = static_cast<double>(count[open]);
      if (both > 0) information += both / total * std::log(both * total / (gate[open] * of_value));
    }
  }
  return std::max(0.0, information);  // rounding may give less
}

GateNumbers gate_numbers(const std::vector<GatedSample>& samples, size_t gate, int64_t context) {
  GateCounts by_token, by_label;
  std::array<std::array<int64_t, 2>, GateNumbers::kPositionBins> by_position{};
  std::array<int64_t, 2> all{};
  for (const GatedSample& sample : samples) {
    for (size_t i = 0; i < sample.token.size(); ++i) {
      const size_t open = sample.is_open[gate][i] ? 1 : 0;
      const int64_t bin = static_cast<int64_t>(i) * GateNumbers::kPositionBins / context;
      ++all[open];
      ++by_token[sample.token[i]][open];
      ++by_position[static_cast<size_t>(std::min(bin, GateNumbers::kPositionBins - 1))][open];
      if (!sample.is_labelled.empty()) ++by_label[sample.is_labelled[i] ? 1 : 0][open];
    }
  }
  GateNumbers numbers;
  numbers.rate = open_share(all).value_or(0.0);
  numbers.token_information = mutual_information(by_token);
  if (!by_label.empty()) {
    numbers.labelled_rate = open_share(by_label[1]);
    numbers.label_information = mutual_information(by_label);
  }
  std::ranges::transform(by_position, numbers.rate_by_position.begin(), open_share);
  return numbers;
}

}  // namespace shoal
