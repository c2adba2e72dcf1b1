#pragma once

#include <array>
#include <string>
#include <tuple>
#include <utility>

#include "sparse/permutations/permutation_method.h"
#include "sparse/permutations/soft_family.h"

namespace shoal {

/// The permutation near which switches are initialised.
enum class FirstSwitches {
  kIdentity,
  kRandom,  ///< a random one for each group
};

template <>
struct EnumNames<FirstSwitches> {
  static constexpr std::array names{std::pair{FirstSwitches::kIdentity, "identity"},
                                    std::pair{FirstSwitches::kRandom, "random"}};
};

/// Options of a family of switches. The default lr is higher than for matrices, whose entries move
/// by at most 1: to flip a switch, Adam must move a logit by about 3, and moves it by `lr` a step.
struct SwitchOptions : LearningOptions {
  SwitchOptions() { lr = 0.02; }

  FirstSwitches near = FirstSwitches::kIdentity;

  static constexpr auto fields() {
    return std::tuple_cat(
        LearningOptions::fields(),
        std::tuple{field("near", &SwitchOptions::near,
                         "the order near which switches start: the identity, or one drawn at "
                         "random; `mix` is the share of this order in the first matrix")});
  }
};

/// Base of soft permutations that compose soft switches: P is a product of factors p Π + (1 - p) I,
/// each of which applies a fixed permutation Π with probability p = sigmoid(logit). The parameter
/// holds these logits, the switches. P is always doubly stochastic, and is decoded by rounding each
/// p. Time and memory are proportional to the size of the permuted weight; P is never formed.
///
/// Each p starts near 0, or near 1 if the first permutation uses the switch. Before random noise, a
/// switch is set as in the first permutation with probability mix^(1 / num_passed), so that this
/// permutation has a share `mix` of P. With all p = 1/2 most families would average all members of
/// a group, from which a layer learns nothing; p = 0 or 1 has no gradient.
///
/// The penalty is the mean of 4 p (1 - p).
class SwitchFamily : public SoftFamily {
 public:
  explicit SwitchFamily(FirstSwitches near) : near_(near) {}

  std::string misfit(const Grouping& grouping) const override;
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
  /// The group size s that a parameter belongs to.
  virtual int64_t side_of(const torch::Tensor& logit_uG) const = 0;
  /// Number of switches that each member passes through.
  virtual int64_t num_passed(int64_t side) const = 0;
  /// P x, or Pᵀ x if is_transposed, along dimension s of x [u, G, a, s, b]: u matrices, G groups of
  /// s members, and a, b the other dimension of a matrix: b in P X (a = 1), a in X P (b = 1).
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
