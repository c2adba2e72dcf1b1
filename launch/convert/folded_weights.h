#pragma once

#include <torch/types.h>

#include <map>
#include <string>

#include "launch/model/build_model.h"
#include "launch/recipe/recipe.h"
#include "parallel/checkpoint/checkpoint_reader.h"

namespace shoal {

/// Reads the weights of a checkpoint with their permutations folded in: S P in place of S and P.
///
/// Products use S P as a weight (Permutation), so that a model without permutations whose weights
/// are S P computes the same bits. Nothing is left to be folded into neighbouring layers, as
/// PA-DST has to for kernels that need the structure of S.
class FoldedWeights {
 public:
  /// `model`: the recipe's, on meta. `reader` outlives this. Throws Error (exit 12) for a layer
  /// whose permutation is still soft, with when it becomes hard, for one that the checkpoint has no
  /// permutation of, and for one whose cells are not chosen yet.
  FoldedWeights(const Recipe& recipe, const BuiltModel& model, const CheckpointReader& reader);

  /// Matrices that are permuted: each expert of a stack is one.
  size_t num_permuted() const { return permuted_.size(); }
  /// A tensor of the checkpoint that has the shape of `weight` and its order: the weight itself,
  /// its average or its mask. Throws CheckpointError.
  torch::Tensor read(const ManifestTensor& tensor, const std::string& weight) const;

 private:
  struct Permuted {
    const ManifestTensor* index;
    bool is_transposed;
    PermutationAxis axis;
  };

  const CheckpointReader& reader_;
  std::map<std::string, Permuted> permuted_;  ///< by the weight's name, of an expert with its id
};

}  // namespace shoal
