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

/// Log of permutations and soft cells. A cell is a set of weights that are on or off together;
/// cells are soft while training still learns which to keep. permutations.jsonl has a line per
/// permuted layer: step, layer, soft (0 or 1), distance and penalty as below; for a stack, means of
/// this rank's experts.
///
/// With permutations, metrics.jsonl has `permutation_soft`, the number of layers with a soft one (a
/// trained matrix), and means over layers: `permutation_distance` from the identity, and
/// `permutation_penalty`, a soft matrix's distance from a permutation (0 if hard). With soft cells
/// it has `cells_soft`, the number of layers whose cells are soft, and `cells_distance`, how far
/// cells' factors are from 1 (kept) and 0 (others): the mean of SoftCells::distance on this rank.
class SparseLog : public LayerLog {
 public:
  SparseLog(std::vector<std::shared_ptr<Permutation>> permutations,
            std::vector<std::shared_ptr<SoftCells>> soft_cells)
      : permutations_(std::move(permutations)), soft_cells_(std::move(soft_cells)) {}
  std::string file() const override { return permutations_.empty() ? "" : "permutations.jsonl"; }
  Report report(int64_t step, bool applied) const override;  ///< `applied` is not used

 private:
  std::vector<std::shared_ptr<Permutation>> permutations_;
  std::vector<std::shared_ptr<SoftCells>> soft_cells_;
};

}  // namespace shoal
