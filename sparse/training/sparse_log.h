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

/// Log of permutations and soft cells (cells of a mask that are not chosen yet). permutations.jsonl
/// has a line per layer; for a stack of experts the mean of those on this rank.
///
/// metrics.jsonl has `permutation_soft`, the number of soft layers, and the means over layers
/// `permutation_distance` (from the identity) and `permutation_penalty` (from a permutation; 0 when
/// hard), if there are permutations; `cells_soft`, the number of layers whose cells are not chosen,
/// and `cells_distance`, the mean of SoftCells::distance on this rank, if there are soft cells.
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
