#include "sparse/training/sparse_log.h"

namespace shoal {
namespace {

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
  Report report;
  int64_t num_soft = 0;
  double distances = 0.0, penalties = 0.0;
  for (const auto& permutation : permutations_) {
    const torch::Tensor distance_u = permutation->distance();
    if (distance_u.numel() == 0) continue;  // a rank without experts of this stack
    const bool is_soft = permutation->is_soft();
    const auto distance = distance_u.mean().item<double>();
    const double penalty = is_soft ? permutation->penalty().mean().item<double>() : 0.0;
    num_soft += is_soft ? 1 : 0;
    distances += distance;
    penalties += penalty;
    MetricsRecord& record = report.records.emplace_back();
    record.add("step", step).add("layer", permutation->name());
    record.add("soft", int64_t{is_soft ? 1 : 0});
    record.add("distance", distance).add("penalty", penalty);
  }
  if (const auto layers = static_cast<double>(report.records.size()); layers > 0) {
    report.means.add("permutation_soft", num_soft);
    report.means.add("permutation_distance", distances / layers);
    report.means.add("permutation_penalty", penalties / layers);
  }
  add_cells(soft_cells_, report.means);
  return report;
}

}  // namespace shoal
