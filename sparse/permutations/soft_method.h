#pragma once

#include <memory>
#include <string>
#include <utility>

#include "sparse/permutations/permutation_method.h"
#include "sparse/permutations/soft_family.h"

namespace shoal {

/// Trains permutations: relaxed matrices of one SoftFamily at first, fixed permutations later.
class SoftMethod : public PermutationMethod {
 public:
  SoftMethod(const LearningOptions& options, std::shared_ptr<const SoftFamily> family)
      : options_(options), family_(std::move(family)) {}

  std::optional<PermutationAxis> axis() const override { return options_.axis; }
  void check(const std::string& layer, int64_t size) const override {
    const char* noun = options_.axis == PermutationAxis::kInputs ? "inputs" : "outputs";
    const std::string misfit = family_->misfit({size, options_.groups, noun});
    if (!misfit.empty()) throw ConfigError(layer + ": " + misfit);
  }
  void begin(Permutation& permutation, uint64_t seed) const override {
    const double mix =
        options_.mix.value_or(family_->usual_mix(permutation.place().size() / options_.groups));
    permutation.soften(options_.groups, mix, seed, family_);
  }
  const LearningOptions* learning() const override { return &options_; }

 private:
  LearningOptions options_;
  std::shared_ptr<const SoftFamily> family_;
};

}  // namespace shoal
