#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launch/model/renamed_state.h"
#include "parallel/checkpoint/manifest.h"
#include "runtime/module/state.h"
#include "sparse/permutations/permutation.h"

namespace shoal {

/// Whether the checkpoint has a permutation of this weight, of a stack of one unit's.
bool is_permuted(const Manifest& checkpoint, const std::string& weight);

/// Throws Error (exit 12): the checkpoint at `path` has a permutation of this weight, the model has
/// none.
[[noreturn]] void refuse_permuted(const std::string& path, const std::string& weight);

/// The permutations that go with weights which a checkpoint has under other names: its own of each
/// weight, of a stack of each unit's, by the model's.
class TakenPermutations : public Stateful {
 public:
  /// Of `all`, those of weights in `source_of` that are permuted in the checkpoint at `path`;
  /// others stay as they are. Throws as refuse_permuted where `all` has none.
  TakenPermutations(const std::vector<std::shared_ptr<Permutation>>& all, SourceOf source_of,
                    const Manifest& checkpoint, const std::string& path);

  /// Throws Error (exit 12) if units of a stack are among `missing`, the model's names of weights
  /// that no rank takes: they would keep an order of their own, soft or hard as may be.
  void require_whole(const std::vector<std::string>& missing) const;

  /// By the checkpoint's names.
  void visit_state(StateVisitor& visitor) override;
  void fit_to(const SavedNames& saved) override;
  void tensors_loaded() override;

 private:
  std::vector<std::shared_ptr<Permutation>> taken_;
  SourceOf source_of_;
};

}  // namespace shoal
