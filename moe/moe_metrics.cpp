#include "moe/moe_metrics.h"

#include <algorithm>
#include <cmath>

namespace shoal {
namespace {

/// Relative loads of all units; layers without tokens have none.
std::vector<double> loads_over_mean(const std::vector<MoeReport>& layers) {
  std::vector<double> result;
  for (const MoeReport& layer : layers) {
    if (layer.load_mean == 0) continue;
    for (const int64_t load : layer.load_U) {
      result.push_back(static_cast<double>(load) / layer.load_mean);
    }
  }
  return result;
}

double mean(const std::vector<MoeReport>& layers, double MoeReport::*value) {
  double sum = 0.0;
  for (const MoeReport& layer : layers) sum += layer.*value;
  return sum / static_cast<double>(layers.size());
}

struct Total {
  double sum = 0.0;
  int64_t count = 0;
};

/// Sum over the layers that have the value.
Total total_of(const std::vector<MoeReport>& layers, std::optional<double> MoeReport::*value) {
  Total total;
  for (const MoeReport& layer : layers) {
    if (!(layer.*value)) continue;
    total.sum += *(layer.*value);
    ++total.count;
  }
  return total;
}

struct LossSum : Total {
  std::string name;
};

/// By name, in the order in which names first appear.
std::vector<LossSum> sum_losses(const std::vector<MoeReport>& layers) {
  std::vector<LossSum> sums;
  for (const MoeReport& layer : layers) {
    for (const auto& [name, value] : layer.losses) {
      auto found = std::ranges::find(sums, name, &LossSum::name);
      if (found == sums.end()) found = sums.insert(sums.end(), LossSum{{}, name});
      found->sum += value;
      ++found->count;
    }
  }
  return sums;
}

}  // namespace

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto lower = static_cast<size_t>(std::floor(place));
  const auto upper = static_cast<size_t>(std::ceil(place));
  return std::lerp(values[lower], values[upper], place - std::floor(place));
}

std::optional<double> mean_mutual_information(const std::vector<MoeReport>& layers) {
  const Total total = total_of(layers, &MoeReport::mutual_information);
  if (total.count == 0) return std::nullopt;
  return total.sum / static_cast<double>(total.count);
}

void add_moe_metrics(const std::vector<MoeReport>& layers, MetricsRecord& record) {
  if (layers.empty()) return;
  const std::vector<double> loads = loads_over_mean(layers);
  int64_t dead_units = 0;
  for (const MoeReport& layer : layers) dead_units += layer.dead_units;
  record.add("moe_load_p50", percentile(loads, 0.5));
  record.add("moe_load_p95", percentile(loads, 0.95));
  record.add("moe_load_max", percentile(loads, 1.0));
  record.add("moe_dead_units", dead_units);
  record.add("moe_load_entropy", mean(layers, &MoeReport::load_entropy));
  record.add("moe_router_entropy", mean(layers, &MoeReport::router_entropy));
  record.add("moe_dropped", mean(layers, &MoeReport::dropped));
  if (const auto information = mean_mutual_information(layers)) {
    record.add("moe_mutual_information", *information);
  }
  const Total work = total_of(layers, &MoeReport::multiply_adds);
  if (work.count > 0) record.add("moe_multiply_adds", work.sum);
  for (const LossSum& loss : sum_losses(layers)) {
    record.add("moe_loss_" + loss.name, loss.sum / static_cast<double>(loss.count));
  }
}

}  // namespace shoal
