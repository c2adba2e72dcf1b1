#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/model/build_model.h"
#include "sparse/sparsity_options.h"
#include "sparse/training/choose_cells.h"
#include "sparse/training/learn_permutations.h"
#include "sparse/training/prune_grow.h"

namespace shoal {

/// A sparse layer as `check` reports it.
struct SparseLayerInfo {
  std::string name;       ///< of the parameter
  int64_t rows, columns;  ///< outputs, inputs
  int64_t copies;         ///< experts of a stack, over all ranks
  double density;         ///< asked for
  int64_t weights;        ///< that are on, of one matrix, those of a product of low rank included
  int64_t low_rank;       ///< Pattern::low_rank
  /// Directions that the rows of a mask span: its weights a row, rounded up, and the rank of a
  /// product beside it; nullopt if they are free (Pattern::limits_span).
  std::optional<int64_t> span;
  int64_t soft_bytes;  ///< of one matrix's soft permutation with gradient and Adam's state; 0: none
  int64_t bytes = 0;   ///< of one matrix's weights and mask in memory

  double reached() const {
    return static_cast<double>(weights) / static_cast<double>(rows * columns);
  }
};

/// The layers that a recipe's `sparsity` makes sparse: linear layers, patch embeddings and experts,
/// never heads, embeddings, norms or routers. Needs no tensors: the model may be on `meta`.
/// Throws ConfigError with every mistake: entries that name no such layer, frozen ones, densities
/// and patterns that do not fit a layer.
std::vector<SparseLayer> make_sparse_layers(const SparsityOptions& options,
                                            const BuiltModel& model);

/// The sparse layers of a recipe that has some. Throws as make_sparse_layers.
std::vector<SparseLayerInfo> describe_sparse(const Recipe& recipe, const BuiltModel& model);

/// What users should know of them: that there are none, for every layer has a density of 1, and
/// which reach less than 0.9 of the density that was asked for.
std::vector<std::string> sparsity_notes(const std::vector<SparseLayerInfo>& layers);

/// Adds the products of low rank that patterns want beside their masks to the model's layers, as
/// modules `low_rank` of these, and their parameters to model.parameters. Throws as
/// make_sparse_layers, and ConfigError for stacks of experts.
void add_low_rank_branches(const Recipe& recipe, BuiltModel& model);

/// Gives the sparse layers of the model their permutations and soft cells, in their first state.
/// Throws as make_sparse_layers, and ConfigError for sizes that cannot be permuted.
void form_layers(const Recipe& recipe, BuiltModel& model);

/// What trains the model's permutations; null if they are not trained. Throws ConfigError for
/// durations that `scale` cannot count.
std::unique_ptr<LearnPermutations> make_learn_permutations(const Recipe& recipe,
                                                           const BuiltModel& model,
                                                           const StepScale& scale);

/// Draws the first masks and keeps them; see PruneGrow. Null without `sparsity`. Throws as
/// make_sparse_layers, and ConfigError for a rule whose times `scale` cannot count.
std::unique_ptr<PruneGrow> make_prune_grow(const Recipe& recipe, const BuiltModel& model,
                                           const StepScale& scale);

/// What chooses the model's soft cells; null if it has none. Throws ConfigError for a choice behind
/// the end of the training.
std::unique_ptr<ChooseCells> make_choose_cells(const Recipe& recipe, const BuiltModel& model,
                                               const StepScale& scale, PruneGrow* prune_grow);

}  // namespace shoal
