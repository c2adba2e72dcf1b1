#include <memory>

#include "sparse/permutations/doubly_stochastic.h"
#include "sparse/permutations/soft_method.h"

namespace shoal {
namespace {

/// Doubly stochastic matrices, trained towards permutations by a penalty, then replaced by them.
/// Source: PA-DST, section 4; Lyu et al. 2020 (AutoShuffleNet). Differs: the penalty is divided by
/// its largest value, first values are mixed, and the nearest permutation is an assignment, because
/// the largest entries of the rows need not be one.
class LearnedPermutation : public SoftMethod {
 public:
  using Options = LearningOptions;
  LearnedPermutation(const Options& options, const Context& /*context*/)
      : SoftMethod(options, std::make_shared<DoublyStochastic>()) {}
  bool saves_soft_matrix() const override { return true; }
};

const Registration<PermutationMethod, LearnedPermutation> registered_learned_permutation{
    "learned", "soft at first and trained, hard later; a matrix for each layer"};

}  // namespace
}  // namespace shoal
