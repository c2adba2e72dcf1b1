#include "launch/weights/fit_sparse_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "launch/model/model_weights.h"
#include "launch/weights/taken_sparse_state.h"
#include "runtime/base/error.h"
#include "sparse/training/prune_grow.h"

namespace shoal {
namespace {

/// Leaves permutations as they are where the checkpoint has none. Throws Error (exit 12) if a
/// permuted weight of the checkpoint would be taken without its permutation.
void fit_permutations(ModelWeights& weights, const Manifest& manifest, const std::string& path) {
  std::erase_if(weights.permutations, [&](const auto& permutation) {
    return !is_permuted(manifest, permutation->name_of_first());
  });
  for (const Parameter& weight : weights.list) {
    const std::string name = name_of_first_unit(weight);
    const bool is_taken = std::ranges::any_of(
        weights.permutations, [&](const auto& one) { return one->name() == weight.name; });
    if (!is_taken && is_permuted(manifest, name)) refuse_permuted(path, name);
  }
}

/// Leaves cells soft as they are where the checkpoint is dense. Throws Error (exit 12) if a weight
/// whose cells are not chosen yet would be taken without their scores.
void fit_soft_cells(ModelWeights& weights, const Manifest& manifest, const std::string& path) {
  const auto has = [&](const std::string& prefix, const SoftCells& cells) {
    return manifest.find_tensor(prefix + cells.layer().name_of(0)) != nullptr;
  };
  const auto is_dense = [&](const auto& cells) {
    return cells->layer().num_matrices() > 0 && !has(SoftCells::kScorePrefix, *cells) &&
           !has(SparseLayer::kMaskPrefix, *cells);
  };
  std::erase_if(weights.soft_cells, is_dense);
  for (const Parameter& weight : weights.list) {
    const std::string name = name_of_first_unit(weight);
    const bool is_soft = std::ranges::any_of(
        weights.soft_cells, [&](const auto& cells) { return cells->name() == weight.name; });
    if (is_soft || manifest.find_tensor(SoftCells::kScorePrefix + name) == nullptr) continue;
    throw Error(ExitCode::kMismatch,
                fmt::format("{}: the cells of {} are not chosen yet, and it would be taken "
                            "without their scores",
                            path, name),
                "use the checkpoint's sparsity, or a later checkpoint");
  }
}

/// The first factor of the product beside a layer's weight.
std::string branch_of(const std::string& weight) {
  constexpr std::string_view kWeight = ".weight";
  if (!weight.ends_with(kWeight)) return "";
  return weight.substr(0, weight.size() - kWeight.size()) + ".low_rank.u";
}

}  // namespace

void fit_sparse_state(ModelWeights& weights, const Manifest& manifest, const std::string& path) {
  fit_permutations(weights, manifest, path);
  fit_soft_cells(weights, manifest, path);
  SourceOf same_names;
  for (const Parameter& weight : weights.list) same_names.emplace(weight.name, weight.name);
  require_branches(same_names, manifest, path);
}

void require_branches(const SourceOf& source_of, const Manifest& manifest,
                      const std::string& path) {
  for (const auto& [weight, source] : source_of) {
    const std::string branch = branch_of(source);
    if (branch.empty() || manifest.find_tensor(branch) == nullptr) continue;
    if (source_of.contains(branch_of(weight))) continue;
    throw Error(ExitCode::kMismatch,
                fmt::format("{}: {} has a product of low rank beside it, and would be taken "
                            "without it",
                            path, source),
                "use the sparsity of the checkpoint's recipe");
  }
}

}  // namespace shoal
