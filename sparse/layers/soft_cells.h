#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "runtime/module/state.h"
#include "runtime/module/weight_form.h"
#include "sparse/layers/sparse_layer.h"

// u matrices of a stack  C cells  K cells at the target density
namespace shoal {

/// Learns the first mask of a sparse weight V by soft selection: every cell is trained, and
/// products use V times the weight of its cell, a_c = min(K softmax(score / T)_c, 1). As the
/// temperature T falls, the weights of the K best cells approach 1, the others 0. harden() ends the
/// selection: scores are freed, masks keep the K best cells, and products use V itself.
///
/// Cells beyond the 2 K largest weights are skipped while they have less than 1 % of the sum of all
/// weights. Source: Tyagi et al. 2025 (DynaDiag), with cells in place of diagonals. Differs:
/// harden() multiplies the K cells by their weights, where the public code sets the weights to 1,
/// so that a layer's output changes only by the dropped cells.
class SoftCells : public WeightForm, public Stateful {
 public:
  /// Starts with equal scores, hence equal weights.
  SoftCells(SparseLayer layer, double temperature);

  const SparseLayer& layer() const { return layer_; }
  const std::string& name() const { return layer_.parameter.name; }
  bool is_soft() const { return score_uC_.defined(); }
  /// The scores [u, C], which require gradients; undefined after harden().
  const torch::Tensor& score() const { return score_uC_; }
  void set_temperature(double temperature) { temperature_u_.fill_(temperature); }

  /// Cell weights a [u, C], differentiable.
  torch::Tensor cell_weights() const;
  /// Mask of the K highest scores of each matrix: bool [u, C].
  torch::Tensor best() const;
  /// Distance of each matrix's weights from a hard choice, [u]: sum over the cells of
  /// |a - (1 if among the K best)| / K; 0 if all a are 0 or 1.
  torch::Tensor distance() const;
  /// Multiplies V by the cells' weights, returns these factors per element of V, and frees the
  /// scores. The caller must mask the cells that are not best().
  torch::Tensor harden();

  torch::Tensor apply(const torch::Tensor& parameter) const override;
  std::vector<torch::Tensor> leaves() const override;

  /// State keys while soft: `sparsity.cells.` + name and `sparsity.temperature.` + name.
  static constexpr const char* kScorePrefix = "sparsity.cells.";
  static constexpr const char* kTemperaturePrefix = "sparsity.temperature.";
  void visit_state(StateVisitor& visitor) override;
  /// Becomes hard if the checkpoint has masks and no scores, soft otherwise.
  void fit_to(const SavedNames& saved) override;

 private:
  torch::TensorOptions options() const;
  torch::Tensor first_scores() const;

  SparseLayer layer_;
  torch::Tensor temperature_u_;  ///< equal elements; a tensor, so that it is saved with each unit
  torch::Tensor score_uC_;
};

}  // namespace shoal
