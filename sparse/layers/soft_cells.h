#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "runtime/module/state.h"
#include "runtime/module/weight_form.h"
#include "sparse/layers/sparse_layer.h"

// u matrices of a stack  C cells  K cells at the requested density
namespace shoal {

/// Soft cells: learns which cells of a sparse weight V to keep. A cell is a set of elements that
/// are on or off together, such as a diagonal. Until the choice all cells are trained, and layers
/// call apply(), which returns V times a weight for each cell c, a_c = min(K softmax(score / T)_c,
/// 1). The lower the temperature T, the nearer the weights of the K best cells are to 1 and the
/// others to 0. After the choice, products use V, which masks restrict to the K best cells, and the
/// scores are freed.
///
/// In each matrix, cell weights beyond the 2 K largest are set to 0 if together they are less than
/// 1 % of the sum of all. Source: Tyagi et al. 2025 (DynaDiag), with cells in place of diagonals.
/// Differs: the choice multiplies the K cells by their weights, so that a layer's output changes
/// only by the dropped cells. The public code sets the weights to 1.
class SoftCells : public WeightForm, public Stateful {
 public:
  /// Starts with equal scores, 1 / C each.
  SoftCells(SparseLayer layer, double temperature);

  const SparseLayer& layer() const { return layer_; }
  const Parameter& weight() const { return layer_.parameter; }
  const std::string& name() const { return layer_.parameter.name; }
  bool is_soft() const { return score_uC_.defined(); }
  /// The scores [u, C], which require gradients; undefined after harden().
  const torch::Tensor& score() const { return score_uC_; }
  void set_temperature(double temperature) { temperature_u_.fill_(temperature); }

  /// Cell weights a [u, C], differentiable.
  torch::Tensor cell_weights() const;
  /// The cells with the K highest scores of each matrix, while soft: bool [u, C].
  torch::Tensor best() const;
  /// Distance of the weights a from a choice, [u]: sum over cells of |a - (1 for the K best, 0 for
  /// others)| / K; 0 once chosen.
  torch::Tensor distance() const;
  /// Makes the choice: multiplies V by its cells' weights and frees the scores. The caller takes
  /// best() before, to mask the other cells. Returns the factor of each element, for V's averages.
  torch::Tensor harden();

  torch::Tensor apply(const torch::Tensor& parameter) const override;
  std::vector<torch::Tensor> leaves() const override;  ///< the scores, while soft

  /// Names of the tensors saved beside the weight while soft: prefix + the weight's name.
  static constexpr const char* kScorePrefix = "sparsity.cells.";
  static constexpr const char* kTemperaturePrefix = "sparsity.temperature.";
  void visit_state(StateVisitor& visitor) override;
  /// Becomes soft if the checkpoint has scores, chosen if it has masks and no scores.
  void fit_to(const SavedNames& saved) override;

 private:
  torch::TensorOptions options() const { return layer_.parameter.tensor.detach().options(); }
  torch::Tensor first_scores() const;

  SparseLayer layer_;
  torch::Tensor temperature_u_;  ///< all equal; one for each matrix, to be saved expert by expert
  torch::Tensor score_uC_;
};

}  // namespace shoal
