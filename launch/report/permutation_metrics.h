#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/records/metrics.h"
#include "sparse/layers/soft_cells.h"
#include "sparse/permutations/permutation.h"

namespace shoal {

/// State of a sparse layer's permutation in one step; for a stack of experts the mean over those on
/// this rank.
struct PermutationReport {
  std::string layer;
  bool is_soft = false;
  double distance = 0.0;  ///< Permutation::distance
  double penalty = 0.0;   ///< mean of Permutation::penalty; 0 when hard
};

std::vector<PermutationReport> permutation_reports(
    const std::vector<std::shared_ptr<Permutation>>& permutations);

/// Adds `permutation_soft`, the number of soft layers, and the means over layers
/// `permutation_distance` and `permutation_penalty`; nothing without permutations.
void add_permutation_metrics(const std::vector<PermutationReport>& reports, MetricsRecord& record);

/// Adds `cells_soft`, the number of layers with soft cells, and `cells_distance`, the mean of
/// SoftCells::distance over all layers on this rank; nothing without SoftCells.
void add_cell_metrics(const std::vector<std::shared_ptr<SoftCells>>& soft_cells,
                      MetricsRecord& record);

/// Record for a line of permutations.jsonl: one layer in one step.
MetricsRecord permutation_record(const PermutationReport& report, int64_t step);

}  // namespace shoal
