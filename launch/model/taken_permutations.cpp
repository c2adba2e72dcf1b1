#include "launch/model/taken_permutations.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {
bool is_permuted(const Manifest& checkpoint, const std::string& weight) {
  return checkpoint.find_tensor(Permutation::kIndexPrefix + weight) != nullptr ||
         checkpoint.find_tensor(Permutation::kSoftPrefix + weight) != nullptr;
}

void refuse_permuted(const std::string& path, const std::string& weight) {
  throw Error(ExitCode::kMismatch,
              fmt::format("{}: {} is permuted, the recipe's is not", path, weight),
              "use the checkpoint's sparsity.permutation and sparsity.layers");
}

TakenPermutations::TakenPermutations(const std::vector<std::shared_ptr<Permutation>>& all,
                                     SourceOf source_of, const Manifest& checkpoint,
                                     const std::string& path)
    : source_of_(std::move(source_of)) {
  for (const auto& [weight, source] : source_of_) {
    if (!is_permuted(checkpoint, source)) continue;
    const auto own = std::ranges::find_if(
        all, [&](const auto& permutation) { return matches_glob(weight, permutation->name()); });
    if (own == all.end()) refuse_permuted(path, source);
    if (std::ranges::find(taken_, *own) == taken_.end()) taken_.push_back(*own);
  }
}

void TakenPermutations::require_whole(const std::vector<std::string>& missing) const {
  for (const auto& permutation : taken_) {
    require_whole_stack(permutation->place().parameter, missing, "order");
  }
}

void TakenPermutations::visit_state(StateVisitor& visitor) {
  RenamingVisitor renamer(visitor, source_of_);
  for (const auto& permutation : taken_) permutation->visit_state(renamer);
}

void TakenPermutations::fit_to(const SavedNames& saved) {
  const SavedNames saved_here = by_source_names(saved, source_of_);
  for (const auto& permutation : taken_) permutation->fit_to(saved_here);
}

void TakenPermutations::tensors_loaded() {
  for (const auto& permutation : taken_) permutation->tensors_loaded();
}

}  // namespace shoal
