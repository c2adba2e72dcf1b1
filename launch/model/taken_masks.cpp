#include "launch/model/taken_masks.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/base/error.h"

namespace shoal {
namespace {

/// Whether the checkpoint has a mask or scores of this weight.
bool has_cells(const Manifest& checkpoint, const std::string& weight) {
  return checkpoint.find_tensor(PruneGrow::kPrefix + weight) != nullptr ||
         checkpoint.find_tensor(SoftCells::kScorePrefix + weight) != nullptr;
}

/// Throws unless the weights with scores are in `with_cells`, the model's names of those that have
/// soft cells.
void refuse_scores(const SourceOf& source_of, const std::set<std::string>& with_cells,
                   const Manifest& checkpoint, const std::string& path) {
  for (const auto& [weight, source] : source_of) {
    if (with_cells.contains(weight)) continue;
    if (checkpoint.find_tensor(SoftCells::kScorePrefix + source) == nullptr) continue;
    throw Error(
        ExitCode::kMismatch,
        fmt::format("{}: the cells of {} are not chosen yet, and {} has no cells to choose softly",
                    path, source, weight),
        "use the checkpoint's sparsity, or a later checkpoint");
  }
}

}  // namespace

bool has_masks(const Manifest& checkpoint) {
  return std::ranges::any_of(checkpoint.tensors, [](const ManifestTensor& tensor) {
    return tensor.name.starts_with(PruneGrow::kPrefix);
  });
}

MasksByName::MasksByName(PruneGrow& prune_grow, const Manifest& checkpoint)
    : prune_grow_(prune_grow) {
  for (size_t l = 0; l < prune_grow.layers().size(); ++l) {
    const SparseLayer& layer = prune_grow.layers()[l];
    if (layer.num_matrices() == 0) continue;
    if (checkpoint.find_tensor(PruneGrow::kPrefix + layer.name_of(0)) != nullptr) {
      layers_.push_back(l);
    }
  }
}

void MasksByName::visit_state(StateVisitor& visitor) {
  for (const size_t l : layers_) prune_grow_.visit_mask(l, visitor);
}

void MasksByName::fit_to(const SavedNames& saved) {
  for (const size_t l : layers_) prune_grow_.fit_to(l, saved);
}

TakenMasks::TakenMasks(PruneGrow* prune_grow,
                       const std::vector<std::shared_ptr<SoftCells>>& soft_cells,
                       SourceOf source_of, const Manifest& checkpoint, const std::string& path)
    : prune_grow_(prune_grow), source_of_(std::move(source_of)) {
  std::set<std::string> with_cells;
  for (const auto& cells : soft_cells) {
    const SparseLayer& layer = cells->layer();
    for (int64_t i = 0; i < layer.num_matrices(); ++i) with_cells.insert(layer.name_of(i));
  }
  refuse_scores(source_of_, with_cells, checkpoint, path);
  if (prune_grow == nullptr) return;
  for (size_t l = 0; l < prune_grow->layers().size(); ++l) {
    const SparseLayer& layer = prune_grow->layers()[l];
    bool is_taken = false;
    for (int64_t i = 0; i < layer.num_matrices(); ++i) {
      const auto source = source_of_.find(layer.name_of(i));
      is_taken = is_taken || (source != source_of_.end() && has_cells(checkpoint, source->second));
    }
    if (!is_taken) continue;
    layers_.push_back(l);
    if (!soft_cells.empty()) soft_cells_.push_back(soft_cells[l]);
  }
}

void TakenMasks::require_whole(const std::vector<std::string>& missing) const {
  for (const size_t l : layers_) {
    require_whole_stack(prune_grow_->layers()[l].parameter, missing, "mask");
  }
}

void TakenMasks::visit_state(StateVisitor& visitor) {
  RenamingVisitor renamer(visitor, source_of_);
  for (const auto& cells : soft_cells_) cells->visit_state(renamer);
  for (const size_t l : layers_) prune_grow_->visit_mask(l, renamer);
}

void TakenMasks::fit_to(const SavedNames& saved) {
  const SavedNames saved_here = by_source_names(saved, source_of_);
  for (const auto& cells : soft_cells_) cells->fit_to(saved_here);
  for (const size_t l : layers_) prune_grow_->fit_to(l, saved_here);
}

void TakenMasks::tensors_loaded() {
  if (prune_grow_ != nullptr) prune_grow_->tensors_loaded();
}

}  // namespace shoal
