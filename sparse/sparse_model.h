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

/// Adds the products of low rank that patterns want beside their masks to the model's layers, as
/// modules `low_rank` of these, whose parameters are listed with the model's from then on. Throws
/// ConfigError for stacks of experts, and beside modules that follow weights alone.
void add_low_rank_branches(const SparsePlan& plan, const SparseScope& scope);

/// What of a model is sparse: its layers with their masks, permutations and soft cells.
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
  /// Calls SparseMasks::require_fit for the recipe's rule.
  void require_masks_fit() const;

  /// Lets sparse kernels compute the products of the layers by sparsity.execution; by default where
  /// they are faster by `break_evens`. A layer without a mask, and one whose permutation is soft,
  /// takes dense products. Throws ConfigError that names each layer which sparsity.execution:
  /// sparse asks of sparse kernels and which these cannot run.
  void run_by(const BreakEvens& break_evens);

  /// Makes the rules that train the layers, in the order of their calls: of permutations, of soft
  /// cells, of masks, of which it draws the first. Sparse kernels run by the break-evens built in.
  /// `average` outlives the rules, and so does this; it may be null. Throws ConfigError for times
  /// that `scale` cannot count, and for what would stay soft behind the end of the training.
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
