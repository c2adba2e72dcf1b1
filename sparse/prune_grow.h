#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/gradients/step_rule.h"
#include "parallel/gradients/weight_average.h"
#include "sparse/grow_rules/grow_rule.h"
#include "sparse/patterns/pattern.h"
#include "sparse/sparse_product.h"

namespace shoal {

/// A weight that is trained sparse: a matrix, or a stack of them with one mask each.
struct SparseLayer {
  Parameter parameter;
  /// Whether a matrix is stored as [inputs, outputs], as experts have it; else [outputs,
  /// inputs...].
  bool is_transposed = false;
  double density = 1.0;  ///< asked for
  std::shared_ptr<const Pattern> pattern;

  int64_t num_matrices() const { return parameter.is_stacked() ? parameter.tensor.size(0) : 1; }
  /// A view [m, n] of one matrix of a tensor shaped like the parameter.
  torch::Tensor matrix(const torch::Tensor& like_parameter, int64_t index) const;
  /// The logical name of one matrix.
  std::string name_of(int64_t index) const;
};

/// Dynamic sparse training: keeps the weights of sparse layers within masks, which a rule prunes
/// and grows. Weights that are off are zero, get no gradient and have no optimizer state.
///
/// First masks and every draw are keyed by (seed, matrix, step); an update reads weights and summed
/// gradients, so that all replicas of a matrix, and any rank grid, have the same masks. Of an
/// expert stack each rank prunes and grows its own units. A weight that is regrown in the update
/// that dropped it keeps its value and state; any other starts from zero.
class PruneGrow : public StepRule {
 public:
  /// Draws the first masks and zeroes the weights outside them. `rescales`: the rest is multiplied
  /// by sqrt(n / weights of its row), so that outputs keep their variance.
  PruneGrow(std::vector<SparseLayer> layers, std::shared_ptr<const GrowRule> rule, uint64_t seed,
            bool rescales);

  /// Averages of weights that are dropped become zero as well. `average` outlives this.
  void keep_sparse(const WeightAverage& average) { average_ = &average; }

  /// From now on `product`, which computes the products of a layer, follows its mask and weights.
  /// It leaves them to a dense W in steps whose rule reads gradients of weights that are off.
  void run_by(size_t layer, std::shared_ptr<SparseProduct> product);
  /// Layers that sparse kernels run in training: for some number of tokens at least.
  int64_t run_by_kernels() const;

  /// Saved beside the weights: `sparsity.mask.` + name.
  static constexpr const char* kPrefix = "sparsity.mask.";

  std::vector<std::string> needs_whole_gradients(int64_t step) override;
  bool replaces_update(int64_t step) override;
  void before_forward(int64_t step) override;
  void before_norm(int64_t step, StepTensors& tensors) override;
  void after_update(int64_t step, StepTensors& tensors) override;
  void visit_state(StateVisitor& visitor) override;
  /// Weights that were loaded are masked as well.
  void tensors_loaded() override;
  /// Throws Error (exit 12) unless the masks are such as the patterns have: where they were loaded
  /// from a checkpoint of another recipe.
  void require_masks_fit() const;

  const std::vector<SparseLayer>& layers() const { return layers_; }
  /// bool, shaped like the layer's parameter.
  const torch::Tensor& mask(size_t layer) const { return masks_[layer]; }

 private:
  bool is_due(int64_t step, const SparseLayer& layer) const;
  Stream stream(const SparseLayer& layer, int64_t index, int64_t step) const;
  torch::Tensor updated_cells(const Pattern& pattern, int64_t step, const CellState& cells) const;
  void update(size_t layer_index, int64_t step, StepTensors& tensors);
  /// Throws CommError where replicas of a matrix have different masks. Collective.
  void check_replicas(int64_t step, StepTensors& tensors) const;
  bool needs_whole_gradient(int64_t step, const SparseLayer& layer) const;
  void apply_masks();
  void masks_changed();

  std::vector<SparseLayer> layers_;
  std::shared_ptr<const GrowRule> rule_;
  uint64_t seed_;
  const WeightAverage* average_ = nullptr;
  std::vector<torch::Tensor> masks_;
  std::vector<std::shared_ptr<SparseProduct>> products_;  ///< null where a dense W is used
};

}  // namespace shoal
