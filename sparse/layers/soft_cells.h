#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "runtime/module/state.h"
#include "runtime/module/weight_form.h"
#include "sparse/layers/sparse_layer.h"

// u matrices of a stack  C cells  K cells of the density asked for
namespace shoal {

/// The cells of a sparse weight V while they are still being chosen: every cell is trained, and
/// products use V times the weight of its cell, a_c = min(K softmax(score / T)_c, 1). The lower the
/// temperature T, the nearer are the weights of the K best cells to 1 and those of the others to 0.
/// Once the choice is made, products use V itself, which masks keep to the K best cells, and the
/// scores are gone.
///
/// Cells behind the 2 K largest weights are left out while their weights are less than 1 % of the
/// sum of all. Source: Tyagi et al. 2025 (DynaDiag), with cells in place of diagonals.
/// Differs: making the choice multiplies the K cells by their weights, where the public code sets
/// those to 1, so that what a layer computes changes by the cells that are dropped alone.
class SoftCells : public WeightForm, public Stateful {
 public:
  /// Equal scores, 1 / C each.
  SoftCells(SparseLayer layer, double temperature);

  const SparseLayer& layer() const { return layer_; }
  const Parameter& weight() const { return layer_.parameter; }
  const std::string& name() const { return layer_.parameter.name; }
  bool is_soft() const { return score_uC_.defined(); }
  /// [u, C], requires gradients; undefined once the choice is made.
  const torch::Tensor& score() const { return score_uC_; }
  void set_temperature(double temperature) { temperature_u_.fill_(temperature); }

  /// a [u, C], differentiable.
  torch::Tensor cell_weights() const;
  /// Those of the K highest scores of each matrix: bool [u, C].
  torch::Tensor best() const;
  /// How far the weights are from a choice, of each matrix: sum over the cells of
  /// |a - (1 if among the K best)| / K. [u]; 0 when it is made.
  torch::Tensor distance() const;
  /// Multiplies V by the cells' weights and frees the scores. What is not best() must be masked.
  /// Returns what V's elements were multiplied by.
  torch::Tensor harden();

  torch::Tensor apply(const torch::Tensor& parameter) const override;
  std::vector<torch::Tensor> leaves() const override;

  /// Saved beside the weight while soft: `sparsity.cells.` + name, `sparsity.temperature.` + name.
  static constexpr const char* kScorePrefix = "sparsity.cells.";
  static constexpr const char* kTemperaturePrefix = "sparsity.temperature.";
  void visit_state(StateVisitor& visitor) override;
  /// Soft, or settled where the checkpoint has masks and no scores.
  void fit_to(const SavedNames& saved) override;

 private:
  torch::TensorOptions options() const;
  torch::Tensor first_scores() const;

  SparseLayer layer_;
  torch::Tensor temperature_u_;  ///< all equal; a tensor, so that it is saved with each unit
  torch::Tensor score_uC_;
};

}  // namespace shoal
