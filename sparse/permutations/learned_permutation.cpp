#include <fmt/format.h>

#include "runtime/base/error.h"
#include "sparse/permutations/permutation_method.h"

namespace shoal {
namespace {

/// Doubly stochastic matrices, trained towards permutations by a penalty, then replaced by them.
/// Source: PA-DST, section 4; Lyu et al. 2020 (AutoShuffleNet). Differs: the penalty is divided by
/// its largest value, first values are mixed, and the nearest permutation is an assignment, because
/// the largest entries of the rows need not be one.
class LearnedPermutation : public PermutationMethod {
 public:
  using Options = LearningOptions;
  LearnedPermutation(const Options& options, const Context& /*context*/) : options_(options) {}

  std::optional<PermutationAxis> axis() const override { return options_.axis; }
  void check(const std::string& layer, int64_t size) const override {
    if (size % options_.groups != 0 || size / options_.groups < 2) {
      throw ConfigError(fmt::format("{}: {} groups do not divide {} {} into groups of at least 2",
                                    layer, options_.groups, size, choice_name(options_.axis)));
    }
  }
  void begin(Permutation& permutation, uint64_t seed) const override {
    permutation.soften(options_.groups, options_.mix, seed);
  }
  const LearningOptions* learning() const override { return &options_; }

 private:
  static const char* choice_name(PermutationAxis axis) {
    return axis == PermutationAxis::kInputs ? "inputs" : "outputs";
  }

  Options options_;
};

const Registration<PermutationMethod, LearnedPermutation> registered_learned_permutation{
    "learned", "soft at first and trained, hard later"};

}  // namespace
}  // namespace shoal
