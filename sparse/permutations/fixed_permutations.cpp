#include "sparse/permutations/permutation_method.h"

namespace shoal {
namespace {

class NoPermutation : public PermutationMethod {
 public:
  using Options = NoOptions;
  NoPermutation(const Options& /*options*/, const Context& /*context*/) {}
  std::optional<PermutationAxis> axis() const override { return std::nullopt; }
  void begin(Permutation& /*permutation*/, uint64_t /*seed*/) const override {}
};

/// Random fixed permutations, the paper's baseline.
class RandomPermutation : public PermutationMethod {
 public:
  struct Options {
    PermutationAxis axis = PermutationAxis::kInputs;

    static constexpr auto fields() {
      return std::tuple{field("axis", &Options::axis,
                              "column: the inputs are reordered, S P; row: the outputs, P S")};
    }
  };
  RandomPermutation(const Options& options, const Context& /*context*/) : options_(options) {}
  std::optional<PermutationAxis> axis() const override { return options_.axis; }
  void begin(Permutation& permutation, uint64_t seed) const override { permutation.shuffle(seed); }

 private:
  Options options_;
};

const Registration<PermutationMethod, NoPermutation> registered_no_permutation{"none",
                                                                               "no permutation"};
const Registration<PermutationMethod, RandomPermutation> registered_random_permutation{
    "random", "a fixed random permutation"};

}  // namespace
}  // namespace shoal
