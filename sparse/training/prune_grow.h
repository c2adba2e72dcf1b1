#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/gradients/step_rule.h"
#include "parallel/gradients/weight_average.h"
#include "sparse/grow_rules/grow_rule.h"
#include "sparse/layers/sparse_masks.h"
#include "sparse/training/chain_removal.h"

namespace shoal {

/// Step rule of dynamic sparse training: keeps the weights of sparse layers within their masks,
/// which a GrowRule, such as RigL, updates. Weights that are off are zero and get no gradient.
///
/// First masks and every draw are keyed by (seed, matrix, step), and updates read weights and
/// summed gradients; so all replicas of a matrix, on any rank grid, have the same masks. Each rank
/// prunes and grows its own experts. A weight that is regrown in the update that dropped it keeps
/// its value and state; any other starts from zero. With the rule soft_top_k, which first trains a
/// factor of each cell (weights that are on or off together), a layer has no mask until keep_cells.
class PruneGrow : public StepRule {
 public:
  /// Draws the first masks and zeroes weights outside masks. `rescales`: multiplies weights inside
  /// by sqrt(n / weights of their row), so that outputs keep their variance. `masks` outlive this.
  PruneGrow(SparseMasks& masks, std::shared_ptr<const GrowRule> rule, uint64_t seed, bool rescales);

  /// Makes updates zero the averages (EMA) of dropped weights too. `average` must outlive this.
  void keep_sparse(const WeightAverage& average) { average_ = &average; }

  /// Multiplies a layer's averaged weight, if any, by `factor`, as ChooseCells does the weight.
  void scale_average(size_t layer, const torch::Tensor& factor) const;
  /// Called by ChooseCells: sets a layer's final mask to these cells, bool [u matrices, C cells].
  /// Collective over the replicas of the weight; throws CommError if they differ.
  void keep_cells(size_t layer, const torch::Tensor& is_on_uC, int64_t step, StepTensors& tensors);

  /// Sets the chains, layers that share hidden neurons, for rules that remove chains: a neuron
  /// without weights on one side then loses its weights on the other.
  void remove_chains_of(std::vector<LayerChain> chains) { chains_ = std::move(chains); }

  /// Prefix of the saved flags of matrices that keep their masks, for rules with early stop.
  static constexpr const char* kStoppedPrefix = "sparsity.stopped.";

  /// Returns the weights whose gradient grow scores read; the trainer copies it before before_norm.
  std::vector<std::string> needs_whole_gradients(int64_t step) override;
  bool replaces_update(int64_t step) override;  ///< true: no optimizer update, as in RigL
  /// Makes layers use dense products in steps whose rule reads gradients of weights that are off.
  void before_forward(int64_t step) override;
  void before_norm(int64_t step, StepTensors& tensors) override;   ///< masks the gradients
  void after_update(int64_t step, StepTensors& tensors) override;  ///< updates masks that are due
  void visit_state(StateVisitor& visitor) override;                ///< lists the masks first
  void fit_to(const SavedNames& saved) override { masks_.fit_to(saved); }
  void tensors_loaded() override { masks_.tensors_loaded(); }

  const SparseMasks& masks() const { return masks_; }

 private:
  bool is_due(int64_t step) const { return !masks_.rest_at(step) && rule_->is_due(step); }
  bool is_due(int64_t step, const SparseLayer& layer) const {
    return layer.pattern->can_change() && is_due(step);
  }
  Stream stream(const SparseLayer& layer, int64_t index, int64_t step) const;
  bool is_stopped(size_t layer, int64_t index) const {
    return !stopped_.empty() && stopped_[layer][index].item<bool>();
  }
  CellState cells_of(size_t layer, int64_t index, int64_t step) const;
  CellCounts counts(const Pattern& pattern, int64_t step, const CellState& cells) const;
  /// The masks between this step's drops and its growth, if the rule reads_kept(); else empty.
  std::vector<torch::Tensor> kept_masks(int64_t step) const;
  void remove_chain(const LayerChain& chain, int64_t step, std::vector<torch::Tensor>& kept) const;
  torch::Tensor updated_cells(const Pattern& pattern, int64_t step, const CellState& cells) const;
  torch::Tensor draw_mask(const SparseLayer& layer) const;
  /// Stops the matrix if the share stop_overlap(), or more, of its grown cells was just dropped.
  void stop_if_settled(const torch::Tensor& stopped, const CellState& cells,
                       const torch::Tensor& updated_C) const;
  /// `kept`: kept_masks for the layer, or undefined.
  void update(size_t layer_index, int64_t step, StepTensors& tensors, const torch::Tensor& kept);
  /// Sets a mask. Zeroes weights, averages and optimizer state, but for cells on before and after.
  void replace_mask(size_t layer_index, const torch::Tensor& mask, StepTensors& tensors);
  /// Throws CommError if replicas of a matrix have different masks. Collective.
  void check_replicas(size_t layer_index, int64_t step, StepTensors& tensors) const;
  bool needs_whole_gradient(int64_t step, const SparseLayer& layer) const {
    return rule_->needs_gradient() && is_due(step, layer);
  }

  SparseMasks& masks_;
  const std::vector<SparseLayer>& layers_;  ///< of the masks
  std::shared_ptr<const GrowRule> rule_;
  uint64_t seed_;
  const WeightAverage* average_ = nullptr;
  std::vector<LayerChain> chains_;
  std::vector<torch::Tensor> stopped_;  ///< bool [matrices, 1] each; empty without early stop
};

}  // namespace shoal
