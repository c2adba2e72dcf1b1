#pragma once

#include <torch/types.h>

#include <map>
#include <string>

#include "launch/model/build_model.h"
#include "launch/recipe/recipe.h"
#include "parallel/checkpoint/checkpoint_reader.h"

namespace shoal {

/// Reads a checkpoint's weights with their permutations folded in: S P in place of S and P.
///
/// Products use S P as a weight (Permutation), so a model without permutations and with weights S P
/// computes the same bits. Neighbouring layers stay unchanged, unlike in PA-DST, which folds
/// permutations into them for kernels that need the structure of S.
class FoldedWeights {
 public:
  /// `model`: the recipe's, on meta. `reader` must outlive this object. Throws Error (exit 12) for
  /// a layer whose permutation is still soft, with the step at which it becomes hard, whose
  /// permutation is missing from the checkpoint, or whose cells are not chosen yet.
  FoldedWeights(const Recipe& recipe, const BuiltModel& model, const CheckpointReader& reader);

  /// Number of permuted matrices, counting each expert of a stack.
  size_t num_permuted() const { return permuted_.size(); }
  /// Reads a tensor of the checkpoint that has the shape and order of `weight`: the weight itself,
  /// its average or its mask. Throws CheckpointError.
  torch::Tensor read(const ManifestTensor& tensor, const std::string& weight) const;

 private:
  struct Permuted {
    const ManifestTensor* index;
    bool is_transposed;
    PermutationAxis axis;
  };

  torch::Tensor read_plain(const ManifestTensor& tensor) const;

  const CheckpointReader& reader_;
  std::map<std::string, Permuted> permuted_;  ///< by the weight's name, with its id for an expert
};

}  // namespace shoal
