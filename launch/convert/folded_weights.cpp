#include "launch/convert/folded_weights.h"

#include <fmt/format.h>

#include "launch/model/model_weights.h"
#include "launch/weights/taken_sparse_state.h"
#include "runtime/base/error.h"

namespace shoal {
namespace {

/// When the soft permutations of the recipe are hard.
std::string time_of_hardening(const Recipe& recipe) {
  const auto method = Registry<PermutationMethod>::create(recipe.sparsity->permutation, {});
  const LearningOptions* learning = method->learning();
  TORCH_CHECK(learning != nullptr, "a soft permutation that is not learned");
  return fmt::format(
      "fold a later checkpoint: all layers are hard from {} of the training on "
      "(sparsity.permutation.until; train.duration is {}), those of a penalty below {} earlier",
      to_text(learning->until), to_text(recipe.train.duration), learning->threshold);
}

}  // namespace

FoldedWeights::FoldedWeights(const Recipe& recipe, const BuiltModel& model,
                             const CheckpointReader& reader)
    : reader_(reader) {
  ModelWeights weights = weights_of(model);
  weights.sparse = {};
  listed_ = list_state(weights);
  const Manifest& manifest = reader.manifest();
  for (const auto& cells : sparse_forms(model).soft_cells) {
    if (manifest.find_tensor(SoftCells::kScorePrefix + cells->layer().name_of(0)) == nullptr)
      continue;
    throw Error(ExitCode::kMismatch,
                fmt::format("'{}': the cells of {} are not chosen yet at step {}", reader.path(),
                            cells->name(), manifest.step),
                "take a later checkpoint: all are chosen from sparsity.rule.until on");
  }
  for (const auto& permutation : sparse_forms(model).permutations) {
    const Permutation::Place& place = permutation->place();
    for (const std::string& name : names_of_units(place.parameter)) {
      const ManifestTensor* index = manifest.find_tensor(Permutation::kIndexPrefix + name);
      if (index != nullptr) {
        permuted_[name] = {index, place.is_transposed, place.axis};
        continue;
      }
      if (manifest.find_tensor(Permutation::kSoftPrefix + name) == nullptr) {
        throw Error(ExitCode::kMismatch,
                    fmt::format("'{}': {} is permuted by its recipe, and has no permutation",
                                reader.path(), name));
      }
      throw Error(ExitCode::kMismatch,
                  fmt::format("'{}': the permutation of {} is still soft at step {}, and only hard "
                              "ones can be folded into weights",
                              reader.path(), name, manifest.step),
                  time_of_hardening(recipe));
    }
  }
}

torch::Tensor FoldedWeights::read(const ManifestTensor& tensor, const std::string& weight) const {
  const torch::NoGradGuard no_grad;
  const torch::Tensor value = read_tensor(reader_, tensor);
  const auto found = permuted_.find(weight);
  if (found == permuted_.end()) return value;
  const Permuted& permuted = found->second;
  Permutation permutation({{weight, value, 0, {}, {}}, permuted.is_transposed, permuted.axis});
  const int64_t n = permutation.place().size();
  if (permuted.index->dtype != Dtype::kI64 || permuted.index->shape != std::vector<int64_t>{n}) {
    throw CheckpointError(fmt::format(
        "'{}': {} is {}, expected the order of {} rows or columns", reader_.path(),
        permuted.index->name, describe_tensor(permuted.index->dtype, permuted.index->shape), n));
  }
  permutation.set_index(read_tensor(reader_, *permuted.index).unsqueeze(0));
  permutation.tensors_loaded();  // throws unless it is a permutation
  return permutation.apply(value);
}

}  // namespace shoal
