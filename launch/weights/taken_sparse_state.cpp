#include "launch/weights/taken_sparse_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

/// Whether the checkpoint has a mask or scores of this weight.
bool has_cells(const Manifest& checkpoint, const std::string& weight) {
  return checkpoint.find_tensor(SparseLayer::kMaskPrefix + weight) != nullptr ||
         checkpoint.find_tensor(SoftCells::kScorePrefix + weight) != nullptr;
}

/// Throws unless all weights with scores have soft cells.
void refuse_scores(const SourceOf& source_of,
                   const std::vector<std::shared_ptr<SoftCells>>& soft_cells,
                   const Manifest& checkpoint, const std::string& path) {
  std::set<std::string> with_cells;
  for (const auto& cells : soft_cells) {
    const SparseLayer& layer = cells->layer();
    for (int64_t i = 0; i < layer.num_matrices(); ++i) with_cells.insert(layer.name_of(i));
  }
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
    return tensor.name.starts_with(SparseLayer::kMaskPrefix);
  });
}

bool is_permuted(const Manifest& checkpoint, const std::string& weight) {
  return checkpoint.find_tensor(Permutation::kIndexPrefix + weight) != nullptr ||
         checkpoint.find_tensor(Permutation::kSoftPrefix + weight) != nullptr;
}

void refuse_permuted(const std::string& path, const std::string& weight) {
  throw Error(ExitCode::kMismatch,
              fmt::format("{}: {} is permuted, the recipe's is not", path, weight),
              "use the checkpoint's sparsity.permutation and sparsity.layers");
}

MasksByName::MasksByName(PruneGrow& prune_grow, const Manifest& checkpoint)
    : prune_grow_(prune_grow) {
  for (size_t l = 0; l < prune_grow.layers().size(); ++l) {
    const SparseLayer& layer = prune_grow.layers()[l];
    if (layer.num_matrices() == 0) continue;
    if (checkpoint.find_tensor(SparseLayer::kMaskPrefix + layer.name_of(0)) != nullptr) {
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

TakenSparseState::TakenSparseState(const BuiltModel& model, PruneGrow* prune_grow,
                                   SourceOf source_of, const Manifest& checkpoint,
                                   const std::string& path)
    : source_of_(std::move(source_of)), prune_grow_(prune_grow) {
  take_permutations(model, checkpoint, path);
  refuse_scores(source_of_, model.soft_cells, checkpoint, path);
  if (prune_grow != nullptr) take_cells(model, checkpoint);
}

void TakenSparseState::take_permutations(const BuiltModel& model, const Manifest& checkpoint,
                                         const std::string& path) {
  for (const auto& [weight, source] : source_of_) {
    if (!is_permuted(checkpoint, source)) continue;
    const auto own = std::ranges::find_if(model.permutations, [&](const auto& permutation) {
      return matches_glob(weight, permutation->name());
    });
    if (own == model.permutations.end()) refuse_permuted(path, source);
    if (std::ranges::find(permutations_, *own) == permutations_.end()) {
      permutations_.push_back(*own);
    }
  }
}

void TakenSparseState::take_cells(const BuiltModel& model, const Manifest& checkpoint) {
  for (size_t l = 0; l < prune_grow_->layers().size(); ++l) {
    const SparseLayer& layer = prune_grow_->layers()[l];
    bool is_taken = false;
    for (int64_t i = 0; i < layer.num_matrices(); ++i) {
      const auto source = source_of_.find(layer.name_of(i));
      is_taken = is_taken || (source != source_of_.end() && has_cells(checkpoint, source->second));
    }
    if (!is_taken) continue;
    layers_.push_back(l);
    if (!model.soft_cells.empty()) soft_cells_.push_back(model.soft_cells[l]);
  }
}

void TakenSparseState::require_whole(const std::vector<std::string>& missing) const {
  for (const auto& permutation : permutations_) {
    require_whole_stack(permutation->place().parameter, missing, "order");
  }
  for (const size_t l : layers_) {
    require_whole_stack(prune_grow_->layers()[l].parameter, missing, "mask");
  }
}

void TakenSparseState::visit_state(StateVisitor& visitor) {
  RenamingVisitor renamer(visitor, source_of_);
  for (const auto& permutation : permutations_) permutation->visit_state(renamer);
  for (const auto& cells : soft_cells_) cells->visit_state(renamer);
  for (const size_t l : layers_) prune_grow_->visit_mask(l, renamer);
}

void TakenSparseState::fit_to(const SavedNames& saved) {
  const SavedNames saved_here = by_source_names(saved, source_of_);
  for (const auto& permutation : permutations_) permutation->fit_to(saved_here);
  for (const auto& cells : soft_cells_) cells->fit_to(saved_here);
  for (const size_t l : layers_) prune_grow_->fit_to(l, saved_here);
}

void TakenSparseState::tensors_loaded() {
  for (const auto& permutation : permutations_) permutation->tensors_loaded();
  if (prune_grow_ != nullptr) prune_grow_->tensors_loaded();
}

}  // namespace shoal
