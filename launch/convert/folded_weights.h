#pragma once

#include <torch/types.h>

#include <map>
#include <string>

#include "launch/model/build_model.h"
#include "launch/recipe/recipe.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/checkpoint/state_list.h"

namespace shoal {

/// Reads a checkpoint's weights with their permutations folded in: S P in place of S and P.
///
/// Products already use S P as their weight (Permutation), so a model with weights S P and no
/// permutations computes equal bits. Neighbouring layers do not change, unlike in PA-DST, whose
/// kernels need the structure of S.
class FoldedWeights {
 public:
  /// `model`: the recipe's, on meta. `reader` must outlive this. Throws Error (exit 12) for a layer
  /// with a soft permutation (and names the step at which it becomes hard), with soft cells, or
  /// without a stored permutation.
  FoldedWeights(const Recipe& recipe, const BuiltModel& model, const CheckpointReader& reader);

  /// Weights and buffers of the model; permutations and soft cells are left out, since they are
  /// folded.
  const StateList& listed() const { return listed_; }
  /// Number of permuted matrices; each expert of a stack counts.
  size_t num_permuted() const { return permuted_.size(); }
  /// Reads a tensor with the shape and order of `weight`: the weight itself, its average or its
  /// mask. Throws CheckpointError.
  torch::Tensor read(const ManifestTensor& tensor, const std::string& weight) const;

 private:
  struct Permuted {
    const ManifestTensor* index;
    bool is_transposed;
    PermutationAxis axis;
  };

  const CheckpointReader& reader_;
  StateList listed_;
  std::map<std::string, Permuted> permuted_;  ///< by weight name, for experts with the id
};

}  // namespace shoal
