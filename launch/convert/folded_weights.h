#pragma once

#include <torch/types.h>

#include <map>
#include <string>

#include "launch/model/build_model.h"
#include "launch/recipe/recipe.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/checkpoint/state_list.h"

namespace shoal {

/// Reads a checkpoint's weights with permutations folded in, to export or run them without: a layer
/// with sparse weight S and a permutation P of its inputs has the weight S P (of its outputs: P S).
///
/// Training multiplies by S P as well (Permutation), so dense products of the folded model give
/// equal bits. Other layers do not change. PA-DST ("Efficient Dynamic Structured Sparse Training
/// with Learned Shuffles"), whose kernels need the structure of S, folds P into the layer before.
class FoldedWeights {
 public:
  /// `model`: built from `recipe`, on meta. `reader` must outlive this. Throws Error (exit 12) for
  /// a layer with a soft permutation (a trained matrix; names the step at which it becomes hard),
  /// with soft cells (the mask is not chosen yet), or without a stored permutation.
  FoldedWeights(const Recipe& recipe, const BuiltModel& model, const CheckpointReader& reader);

  /// Names, shapes and dtypes of the weights and buffers; permutations are not among them.
  const StateList& listed() const { return listed_; }
  /// Number of permuted matrices; each expert of a stack counts.
  size_t num_permuted() const { return permuted_.size(); }
  /// Reads a stored tensor, permuted like `weight`: the weight of that name, its average or its
  /// mask. Throws CheckpointError.
  torch::Tensor read(const ManifestTensor& tensor, const std::string& weight) const;

 private:
  struct Permuted {
    const ManifestTensor* index;  ///< the stored permutation
    bool is_transposed;           ///< the weight is stored as [inputs, outputs]
    PermutationAxis axis;
  };

  const CheckpointReader& reader_;
  StateList listed_;
  std::map<std::string, Permuted> permuted_;  ///< by weight name, for experts with the id
};

}  // namespace shoal
