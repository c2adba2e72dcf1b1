#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sparse/layers/sparse_layer.h"
#include "sparse/sparsity_options.h"

namespace shoal {

/// A model with all that decides what of it is sparse, and how. It outlives what is made of it.
struct SparseScope {
  torch::nn::Module& root;
  const std::vector<Parameter>& parameters;  ///< of root
  /// Entries that stand for sparsity.layers where it has none.
  std::vector<std::string> usual_layers = {};
  /// Modules that stay dense with all modules inside them, as those do that say so (StaysDense).
  std::vector<std::shared_ptr<torch::nn::Module>> dense = {};
  /// Names the task if some of its modules follow weights and masks alone; else empty.
  std::string task_of_followers = {};
  torch::Dtype compute_dtype = torch::kFloat32;
  uint64_t seed = 0;
};

/// Which weights of a model are sparse, by their names: equal on all ranks and devices.
struct SparsePlan {
  struct Layer {
    std::string name;            ///< of the parameter
    bool is_transposed = false;  ///< SparseLayer::is_transposed
    int64_t copies = 1;          ///< experts of a stack, over all ranks
    double density = 1.0;        ///< asked for
    std::shared_ptr<const Pattern> pattern;
  };
  std::vector<Layer> layers;

  /// The planned layers of a model with these parameters. Throws ConfigError if one is frozen.
  std::vector<SparseLayer> of(const std::vector<Parameter>& parameters) const;
};

/// Plans what a recipe's `sparsity` makes sparse: linear layers, patch embeddings and experts,
/// never heads, embeddings, norms or routers. Needs no tensors: the model may be on `meta`.
/// Throws ConfigError with every mistake: entries that name no such layer, densities and patterns
/// that do not fit a layer.
SparsePlan plan_sparsity(const SparsityOptions& options, const SparseScope& scope);

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

/// Notes for users: that no layer is sparse, for all have a density of 1, and which reach less than
/// 0.9 of the density that was asked for.
std::vector<std::string> sparsity_notes(const std::vector<SparseLayerInfo>& layers);

/// Calls it, and adds the lines of a ConfigError to the mistakes.
template <class Call>
void collect_mistakes(const Call& call, std::vector<std::string>& mistakes) {
  try {
    call();
  } catch (const ConfigError& error) {
    for (const std::string& line : error.lines()) mistakes.push_back(line);
  }
}

}  // namespace shoal
