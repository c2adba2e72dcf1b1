#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/records/layer_log.h"
#include "sparse/layers/soft_cells.h"
#include "sparse/permutations/permutation.h"

namespace shoal {

/// The order of inputs or outputs of each sparse layer, of a stack of experts the mean of those on
/// this rank, and the cells that are not chosen yet.
///
/// Means over the layers: `permutation_soft`, the number of soft ones, `permutation_distance`
/// (Permutation::distance) and `permutation_penalty` (the mean of Permutation::penalty; 0 when
/// hard); none without permutations. `cells_soft`, the number of layers whose cells are not chosen
/// yet, and `cells_distance`, the mean of SoftCells::distance over all layers on this rank; none
/// without soft cells.
class SparseLog : public LayerLog {
 public:
  SparseLog(std::vector<std::shared_ptr<Permutation>> permutations,
            std::vector<std::shared_ptr<SoftCells>> soft_cells)
      : permutations_(std::move(permutations)), soft_cells_(std::move(soft_cells)) {}
  std::string file() const override { return permutations_.empty() ? "" : "permutations.jsonl"; }
  Report report(int64_t step, bool applied) const override;

 private:
  std::vector<std::shared_ptr<Permutation>> permutations_;
  std::vector<std::shared_ptr<SoftCells>> soft_cells_;
};

}  // namespace shoal
