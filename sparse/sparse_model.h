#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/gradients/step_rule.h"
#include "parallel/gradients/weight_average.h"
#include "sparse/kernels/break_even.h"
#include "sparse/layers/sparse_masks.h"
#include "sparse/layers/sparse_state.h"
#include "sparse/sparse_plan.h"

namespace shoal {

/// Adds the low-rank products that some patterns have beside their masks to the model's layers, as
/// their submodules `low_rank`; the model lists their parameters from then on. Throws ConfigError
/// for a stack of experts, and for a task with a momentum encoder, which would not follow them.
void add_low_rank_branches(const SparsePlan& plan, const SparseScope& scope);

/// The sparse layers of a model, with their masks, permutations and soft cells (weights of mask
/// cells that are trained until the cells are chosen).
class SparseModel {
 public:
  /// Gives the planned layers permutations and soft cells in their first state; they have no masks
  /// yet. Nothing is allocated for a model on `meta`. Throws ConfigError for frozen layers, and for
  /// sizes that cannot be permuted.
  SparseModel(const SparsityOptions& options, SparsePlan plan, const SparseScope& scope);

  const SparsePlan& plan() const { return plan_; }
  const std::vector<SparseLayer>& layers() const { return masks_.layers(); }
  SparseMasks& masks() { return masks_; }
  /// All permutations and soft cells, which are saved with the weights; without masks.
  const SparseState& forms() const { return forms_; }
  /// forms() and the masks of all layers.
  SparseState state();
  /// Throws ConfigError for layers that cannot follow sparsity.rule or, where sparsity.execution
  /// asks for it, be run by sparse kernels.
  std::vector<SparseLayerInfo> describe() const;
  /// Throws Error (exit 12) if a mask that was loaded is none that its pattern has at this density.
  void require_masks_fit() const;

  /// Lets sparse kernels compute the products of the layers by sparsity.execution; by default where
  /// they are faster by `break_evens`. A layer without a mask, and one whose permutation is soft,
  /// takes dense products. Throws ConfigError that names each layer which sparsity.execution:
  /// sparse asks of sparse kernels and which these cannot run.
  void run_by(const BreakEvens& break_evens);

  /// Returns the step rules of the layers in the order of their calls: permutations, soft cells,
  /// masks. Draws the first masks, and has sparse kernels run by the built-in break-evens.
  /// `average` may be null; it and this object outlive the rules. Throws ConfigError for a duration
  /// that `scale` cannot convert to steps, and for a permutation or soft cells that would still be
  /// soft at the end of the training.
  std::vector<std::unique_ptr<StepRule>> make_rules(const StepScale& scale,
                                                    const WeightAverage* average);

 private:
  /// Null if cells are not chosen softly.
  const SoftChoice* soft_choice() const { return rule_ ? rule_->soft_choice() : nullptr; }
  std::vector<std::shared_ptr<Permutation>> make_permutations() const;
  void set_forms(const SparseScope& scope);
  void check_execution(std::vector<std::string>& mistakes) const;

  SparsityOptions options_;
  SparsePlan plan_;
  torch::nn::Module& root_;
  torch::Dtype compute_dtype_;
  uint64_t seed_;
  /// Tells what is independent of the training's length; null if its options are wrong.
  std::shared_ptr<const GrowRule> rule_;
  SparseMasks masks_;
  SparseState forms_;
};

}  // namespace shoal
