#pragma once

#include <array>
#include <string>
#include <tuple>

#include "sparse/permutations/permutation_method.h"
#include "sparse/permutations/soft_family.h"

// u matrices of a stack  G groups of a matrix's inputs or outputs  s members of a group
namespace shoal {

/// The permutation near which switches are initialised.
enum class FirstSwitches {
  kIdentity,
  kRandom,  ///< a random one for each group
};

template <>
inline constexpr std::array kEnumWords<FirstSwitches>{"identity", "random"};

/// Options of a family of switches. The default lr is higher than for matrices, whose entries move
/// by at most 1: a logit moves by about `lr` a step, and by about 3 until its switch flips.
struct SwitchOptions : LearningOptions {
  SwitchOptions() { lr = 0.02; }

  FirstSwitches near = FirstSwitches::kIdentity;

  static constexpr auto fields() {
    return std::tuple_cat(
        LearningOptions::fields(),
        std::tuple{field("near", &SwitchOptions::near,
                         "the permutation near which switches start: the identity, or a random "
                         "one; `mix` is the fraction of this permutation in the initial matrix")});
  }
};

/// Base of soft permutations that compose soft switches. A switch is a fixed permutation Π of a
/// group's members, such as an exchange of two, that is applied with probability p =
/// sigmoid(logit): the factor p Π + (1 - p) I. P is the product of a group's factors. The parameter
/// holds the logits: logit_uG [u, G, two dimensions that the family chooses], or logit_G [G, ...]
/// for one matrix. P is always doubly stochastic, and decoded by rounding each p. P is never
/// formed: products apply switch after switch. The penalty is the mean of 4 p (1 - p).
///
/// P starts with a share `mix` of a first permutation (FirstSwitches). A member passes num_passed
/// switches, so each is set as in that permutation with probability mix^(1 / num_passed); then
/// noise is added to its logit. So p starts near 0 or 1, not at them: there it has no gradient.
class SwitchFamily : public SoftFamily {
 public:
  using Options = SwitchOptions;
  static constexpr bool kIsMatrix = false;
  explicit SwitchFamily(const Options& options) : near_(options.near) {}

  std::string misfit(const Grouping& grouping) const override;  ///< why groups do not fit; or ""
  void fill(const torch::Tensor& logit_G, double mix, const Stream& stream) const override;
  double usual_mix(int64_t /*side*/) const override { return 0.5; }
  torch::Tensor product(const torch::Tensor& logit_uG, const torch::Tensor& x_uG,
                        Factor factor) const override;
  torch::Tensor penalty(const torch::Tensor& logit_uG) const override;
  torch::Tensor penalty_gradient(const torch::Tensor& logit_uG) const override;
  torch::Tensor index(const torch::Tensor& logit_uG) const override;
  torch::Tensor squared_distance(const torch::Tensor& logit_uG) const override;

 protected:
  /// Name in recipes, and minimum number of members in a group, a power of 2.
  virtual std::string_view name() const = 0;
  virtual int64_t least_side() const = 0;
  /// The group size s, from the last two dimensions of a parameter.
  virtual int64_t side_of(const torch::Tensor& logit_uG) const = 0;
  /// Number of switches that each member passes through, one after the other.
  virtual int64_t num_passed(int64_t side) const = 0;
  /// P x, or Pᵀ x if is_transposed, along dimension s of x [u, G, a, s, b], from the p of each
  /// switch. For a product P X, x is X with a = 1; for X P, x is X with b = 1.
  virtual torch::Tensor switched(const torch::Tensor& probability_uG, const torch::Tensor& x_uGasb,
                                 bool is_transposed) const = 0;
  /// Switch settings, 0 or 1, for a random permutation of each group; shaped like logit_G.
  virtual torch::Tensor random_switches(const torch::Tensor& logit_G,
                                        const Stream& stream) const = 0;

 private:
  FirstSwitches near_;
};

/// Base-2 logarithm of a power of 2.
int64_t log2_of(int64_t side);

}  // namespace shoal
