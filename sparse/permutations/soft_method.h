#pragma once

#include <memory>
#include <string>

#include "sparse/permutations/permutation_method.h"
#include "sparse/permutations/soft_family.h"

namespace shoal {

/// Permutation method that trains permutations. Each begins as a relaxed matrix of a SoftFamily,
/// such as Benes; the step rule LearnPermutations trains the matrix, and later makes it a fixed
/// index. Family::Options extend LearningOptions; Family::kIsMatrix is true if checkpoints hold the
/// relaxed matrix itself.
template <class Family>
class SoftMethod : public PermutationMethod {
 public:
  using Options = typename Family::Options;
  explicit SoftMethod(const Options& options)
      : options_(options), family_(std::make_shared<Family>(options)) {}

  std::optional<PermutationAxis> axis() const override { return options_.axis; }
  /// Throws ConfigError if `size` inputs or outputs do not suit the family and options.groups.
  void check(const std::string& layer, int64_t size) const override {
    const char* noun = options_.axis == PermutationAxis::kInputs ? "inputs" : "outputs";
    const std::string misfit = family_->misfit({size, options_.groups, noun});
    if (!misfit.empty()) throw ConfigError(layer + ": " + misfit);
  }
  /// Makes a permutation soft. `mix`: share of the identity, or of order `near`, in the first P.
  void begin(Permutation& permutation, uint64_t seed) const override {
    const double mix =
        options_.mix.value_or(family_->usual_mix(permutation.place().size() / options_.groups));
    permutation.soften(options_.groups, mix, seed, family_);
  }
  bool saves_soft_matrix() const override { return Family::kIsMatrix; }
  const LearningOptions* learning() const override { return &options_; }

 private:
  LearningOptions options_;
  std::shared_ptr<const SoftFamily> family_;
};

}  // namespace shoal
