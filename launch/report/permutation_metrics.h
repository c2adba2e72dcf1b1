#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/records/metrics.h"
#include "sparse/layers/soft_cells.h"
#include "sparse/permutations/permutation.h"

namespace shoal {

/// Permutation of one sparse layer in one step; for a stack of experts the mean over this rank's.
struct PermutationReport {
  std::string layer;
  bool is_soft = false;
  double distance = 0.0;  ///< Permutation::distance
  double penalty = 0.0;   ///< mean of Permutation::penalty; 0 when hard
};

std::vector<PermutationReport> permutation_reports(
    const std::vector<std::shared_ptr<Permutation>>& permutations);

/// Adds `permutation_soft`, the number of soft layers, `permutation_distance` and
/// `permutation_penalty`, means over the layers; nothing without permutations.
void add_permutation_metrics(const std::vector<PermutationReport>& reports, MetricsRecord& record);

/// Adds `cells_soft`, the number of layers whose cells are not chosen yet, and `cells_distance`,
/// the mean of SoftCells::distance over all layers on this rank; nothing without soft cells.
void add_cell_metrics(const std::vector<std::shared_ptr<SoftCells>>& soft_cells,
                      MetricsRecord& record);

/// Record for a line of permutations.jsonl: one layer in one step.
MetricsRecord permutation_record(const PermutationReport& report, int64_t step);

}  // namespace shoal
