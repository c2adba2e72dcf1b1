#pragma once

#include <torch/types.h>

#include <map>
#include <string>

#include "launch/model/build_model.h"
#include "launch/recipe/recipe.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/checkpoint/state_list.h"

namespace shoal {

/// Reads a checkpoint's weights with permutations folded in, to export or run them without
/// permutations. A layer with sparse weight S and a permutation P of its inputs gets the weight
/// S P; with a permutation P of its outputs it gets P S. Other layers do not change. With dense
/// products the folded model gives the same bits as the original, which multiplies by S P too.
/// PA-DST ("Efficient Dynamic Structured Sparse Training with Learned Shuffles") instead folds P
/// into the layer before, since its kernels need the structure of S.
class FoldedWeights {
 public:
  /// `model`: built from `recipe`, on meta. `reader` must outlive this. Throws Error (exit 12) if
  /// the permutation of a layer is soft (a trained matrix) or not stored, or if a layer still has
  /// soft cells (trained factors of groups of weights, until its mask is chosen).
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
