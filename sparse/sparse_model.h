#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/gradients/step_rule.h"
#include "parallel/gradients/weight_average.h"
#include "runtime/files/safetensors.h"
#include "runtime/records/layer_log.h"
#include "sparse/kernels/break_even.h"
#include "sparse/layers/sparse_masks.h"
#include "sparse/layers/sparse_state.h"
#include "sparse/sparse_plan.h"

namespace shoal {

/// Adds the low-rank products U V that some patterns have beside their masks to the planned layers,
/// as submodules `low_rank`. Afterwards list the parameters anew for SparseModel. Throws
/// ConfigError for a layer that cannot have one, such as a stack of experts, and for a task with a
/// momentum encoder, which would not follow U and V.
void add_low_rank_branches(const SparsePlan& plan, const SparseScope& scope);

/// The sparse layers of a model with their masks, permutations of inputs or outputs, and soft
/// cells. A cell is a set of weights that are on or off together; a soft cell has a trained score,
/// which sets the factor of its weights in products, until the best cells become the mask.
/// Permutations and soft cells are forms: functions of a weight, applied before its product.
///
/// Order of calls in training: constructor, make_rules, loading of a checkpoint, run_by. Without
/// training: constructor, run_by, loading; the kernels of run_by follow masks that come later.
class SparseModel {
 public:
  /// Gives the layers of `plan` (names, densities, patterns) permutations and soft cells in their
  /// first state, but no masks. `scope`: the model with its parameters; on `meta` nothing is
  /// allocated. Throws ConfigError for frozen layers, and for sizes that cannot be permuted.
  SparseModel(const SparsityOptions& options, SparsePlan plan, const SparseScope& scope);
  SparseModel(const SparseModel&) = delete;  // step rules hold references to its masks

  const SparsePlan& plan() const { return plan_; }
  const std::vector<SparseLayer>& layers() const { return masks_.layers(); }
  SparseMasks& masks() { return masks_; }
  /// All permutations and soft cells, saved with the weights; masks are saved with the step rules.
  const SparseState& forms() const { return forms_; }
  /// Permutations, soft cells and all masks, to be loaded where no training is resumed.
  SparseState state();
  /// True while a permutation is a trained matrix or a layer's cells are not chosen yet.
  bool has_soft_forms() const;
  /// Returns the log of permutations and soft cells (SparseLog); empty if there are none.
  LayerLogs layer_logs() const;
  /// Returns entries of Adam's moments, to estimate a checkpoint's size: two for each permutation
  /// (sparsity.soft.*) and scores of soft cells (sparsity.cells.*) among a model's saved `weights`.
  static std::vector<SafetensorsEntry> moments_of(const std::vector<SafetensorsEntry>& weights);
  /// Returns what `shoal check` reports of the layers. Throws ConfigError for layers that
  /// sparsity.rule does not support, or that sparse kernels cannot run though they must.
  std::vector<SparseLayerInfo> describe() const;
  /// Throws Error (exit 12) if a mask that was loaded does not fit its pattern and density.
  void require_masks_fit() const;

  /// Chooses how products of the layers are computed, by sparsity.execution: by default with sparse
  /// kernels where `break_evens` say that they are faster, and always dense while a layer has no
  /// mask or a soft permutation. Throws ConfigError for layers that must be sparse and cannot.
  void run_by(const BreakEvens& break_evens);

  /// Returns the step rules, which act beside the optimizer in each step, in the order of their
  /// calls: permutations, soft cells, masks. Draws the first masks, and calls run_by with built-in
  /// break-evens; a later run_by replaces them. `average`: may be null; must outlive the rules,
  /// like this object. Throws ConfigError for a duration that `scale` cannot convert to steps, and
  /// for a permutation or soft cells that would still be soft at the end of the training.
  std::vector<std::unique_ptr<StepRule>> make_rules(const StepScale& scale,
                                                    const WeightAverage* average);

 private:
  /// Null if the rule does not choose cells softly.
  const SoftChoice* soft_choice() const { return rule_ ? rule_->soft_choice() : nullptr; }
  std::vector<std::shared_ptr<Permutation>> make_permutations() const;
  void set_forms(const SparseScope& scope);
  /// Messages on layers that sparse kernels cannot run though sparsity.execution is `sparse`.
  std::vector<std::string> execution_mistakes() const;

  SparsityOptions options_;
  SparsePlan plan_;
  torch::nn::Module& root_;
  torch::Dtype compute_dtype_;
  uint64_t seed_;
  /// Rule for checks and soft_choice(); make_rules() makes its own. Null if its options are wrong.
  std::shared_ptr<const GrowRule> rule_;
  SparseMasks masks_;
  SparseState forms_;
};

}  // namespace shoal
