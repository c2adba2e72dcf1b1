#include "sparse/training/sparse_log.h"

#include <algorithm>

namespace shoal {
namespace {

struct PermutationReport {
  std::string layer;
  bool is_soft = false;
  double distance = 0.0, penalty = 0.0;
};

std::vector<PermutationReport> reports_of(
    const std::vector<std::shared_ptr<Permutation>>& permutations) {
  std::vector<PermutationReport> reports;
  for (const auto& permutation : permutations) {
    const torch::Tensor distance_u = permutation->distance();
    if (distance_u.numel() == 0) continue;  // a rank without experts of this stack
    PermutationReport report{permutation->name(), permutation->is_soft(),
                             distance_u.mean().item<double>()};
    if (report.is_soft) report.penalty = permutation->penalty().mean().item<double>();
    reports.push_back(std::move(report));
  }
  return reports;
}

void add_permutations(const std::vector<PermutationReport>& reports, MetricsRecord& record) {
  if (reports.empty()) return;
  const auto mean_of = [&](double PermutationReport::*value) {
    double sum = 0.0;
    for (const PermutationReport& report : reports) sum += report.*value;
    return sum / static_cast<double>(reports.size());
  };
  record.add("permutation_soft",
             static_cast<int64_t>(std::ranges::count(reports, true, &PermutationReport::is_soft)));
  record.add("permutation_distance", mean_of(&PermutationReport::distance));
  record.add("permutation_penalty", mean_of(&PermutationReport::penalty));
}

void add_cells(const std::vector<std::shared_ptr<SoftCells>>& soft_cells, MetricsRecord& record) {
  int64_t soft = 0, matrices = 0;
  double distance = 0.0;
  for (const auto& cells : soft_cells) {
    soft += cells->is_soft() ? 1 : 0;
    matrices += cells->layer().num_matrices();
    distance += cells->distance().sum().item<double>();
  }
  if (matrices == 0) return;
  record.add("cells_soft", soft);
  record.add("cells_distance", distance / static_cast<double>(matrices));
}

}  // namespace

LayerLog::Report SparseLog::report(int64_t step, bool /*applied*/) const {
  Report result;
  const std::vector<PermutationReport> reports = reports_of(permutations_);
  add_permutations(reports, result.means);
  add_cells(soft_cells_, result.means);
  for (const PermutationReport& report : reports) {
    MetricsRecord& record = result.records.emplace_back();
    record.add("step", step).add("layer", report.layer);
    record.add("soft", int64_t{report.is_soft ? 1 : 0});
    record.add("distance", report.distance).add("penalty", report.penalty);
  }
  return result;
}

}  // namespace shoal
