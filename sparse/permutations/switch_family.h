#pragma once

#include <array>
#include <string>
#include <tuple>
#include <utility>

#include "sparse/permutations/permutation_method.h"
#include "sparse/permutations/soft_family.h"

namespace shoal {

/// The member of the family that a soft P starts close to.
enum class FirstSwitches {
  kIdentity,
  kRandom,  ///< a random member for each group
};

template <>
struct EnumNames<FirstSwitches> {
  static constexpr std::array names{std::pair{FirstSwitches::kIdentity, "identity"},
                                    std::pair{FirstSwitches::kRandom, "random"}};
};

/// Options of a family of switches. Adam moves a logit by about `lr` a step at most, and half of
/// them have to move by about 3; matrix entries, at most 1, need a lower rate.
struct SwitchOptions : LearningOptions {
  SwitchOptions() { lr = 0.02; }

  FirstSwitches near = FirstSwitches::kIdentity;

  static constexpr auto fields() {
    return std::tuple_cat(
        LearningOptions::fields(),
        std::tuple{field("near", &SwitchOptions::near,
                         "what the first order is near: the identity, or one drawn at random, "
                         "whose share `mix` is then")});
  }
};

/// Products of soft steps p Π + (1 - p) I, each of which applies a fixed permutation Π with
/// probability p, the sigmoid of a logit. The logits, called switches, are the parameter. P is
/// always doubly stochastic; rounding every p gives its permutation. A step takes time and memory
/// in proportion to the permuted weight; P itself is never formed.
///
/// Initialisation: with all p at 1/2 most families give the mean of all members of a group, and the
/// layer would learn nothing; with all p at 0 or 1 the logits have no gradient. So each p starts
/// near the value of its switch in the first member (FirstSwitches), at a distance that gives this
/// member the share `mix` of P, times a random factor.
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
  /// Name in recipes, and the least group size, a power of 2.
  virtual std::string_view name() const = 0;
  virtual int64_t least_side() const = 0;
  /// Group size s of a parameter.
  virtual int64_t side_of(const torch::Tensor& logit_uG) const = 0;
  /// Number of switches that each member passes.
  virtual int64_t num_passed(int64_t side) const = 0;
  /// P x, or Pᵀ x if transposed, along dimension s of x [u, G, a, s, b].
  virtual torch::Tensor switched(const torch::Tensor& probability_uG, const torch::Tensor& x_uGasb,
                                 bool is_transposed) const = 0;
  /// Switches, 0 or 1, of a random member for each group. Has the parameter's shape.
  virtual torch::Tensor random_switches(const torch::Tensor& logit_G,
                                        const Stream& stream) const = 0;

 private:
  FirstSwitches near_;
};

/// Base-2 logarithm of a power of 2.
int64_t log2_of(int64_t side);

}  // namespace shoal
