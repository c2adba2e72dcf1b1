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

/// A model, and what decides which of its weights are sparse. Must outlive what is made with it.
struct SparseScope {
  torch::nn::Module& root;
  const std::vector<Parameter>& parameters;  ///< of root
  /// Layers that are sparse if sparsity.layers names none: the backbone's default.
  std::vector<std::string> usual_layers = {};
  /// Modules that stay dense with their submodules, besides modules derived from StaysDense.
  std::vector<std::shared_ptr<torch::nn::Module>> dense = {};
  /// Name of the task if it has a momentum encoder, else empty. If set, permutations, low-rank
  /// products and soft cells (a mask still being chosen) are refused: the encoder would lack them.
  std::string task_of_followers = {};
  torch::Dtype compute_dtype = torch::kFloat32;
  uint64_t seed = 0;  ///< run.seed
};

/// Which weights of a model are sparse, by their names, with density and pattern: the result of
/// plan_sparsity, equal on all ranks and devices.
struct SparsePlan {
  struct Layer {
    std::string name;            ///< of the parameter
    bool is_transposed = false;  ///< SparseLayer::is_transposed
    int64_t copies = 1;          ///< experts of a stack, over all ranks
    double density = 1.0;        ///< target density
    std::shared_ptr<const Pattern> pattern;
  };
  std::vector<Layer> layers;

  /// Finds the planned weights among these parameters. Throws ConfigError if one is frozen.
  std::vector<SparseLayer> of(const std::vector<Parameter>& parameters) const;
};

/// Chooses the weights that the recipe's `sparsity` makes sparse: linear layers, patch embeddings
/// and experts, never heads, embeddings, norms or routers. The model may be on `meta`. Throws
/// ConfigError with every mistake: entries that name no such layer, densities and patterns that do
/// not fit a layer.
SparsePlan plan_sparsity(const SparsityOptions& options, const SparseScope& scope);

/// A sparse layer as `shoal check` reports it.
struct SparseLayerInfo {
  std::string name;       ///< of the parameter
  int64_t rows, columns;  ///< outputs, inputs
  int64_t copies;         ///< experts of a stack, over all ranks
  double density;         ///< target density
  int64_t weights;        ///< of one matrix: those that are on, and those of a low-rank product
  int64_t low_rank;       ///< rank of a dense product beside the mask; 0: none
  /// Number of input directions that the rows span, for the bound on linear regions of a ReLU MLP
  /// (linear_regions.h): mean weights per row, rounded up, plus low_rank. Nullopt: no limit.
  std::optional<int64_t> span;
  int64_t soft_bytes;  ///< of one matrix's soft permutation with gradient and Adam's state; 0: none
  int64_t bytes = 0;   ///< of one matrix's weights and mask in memory

  double reached() const {
    return static_cast<double>(weights) / static_cast<double>(rows * columns);
  }
};

/// Notes if no layer is sparse (all densities are 1), or if some reach < 0.9 of their density.
std::vector<std::string> sparsity_notes(const std::vector<SparseLayerInfo>& layers);

/// Calls `call()`; if it throws ConfigError, adds its lines to `mistakes`.
template <class Call>
void collect_mistakes(const Call& call, std::vector<std::string>& mistakes) {
  try {
    call();
  } catch (const ConfigError& error) {
    for (const std::string& line : error.lines()) mistakes.push_back(line);
  }
}

}  // namespace shoal
