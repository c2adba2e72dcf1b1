#pragma once

#include <array>
#include <string>
#include <tuple>
#include <utility>

#include "sparse/permutations/permutation_method.h"
#include "sparse/permutations/soft_family.h"

namespace shoal {

/// Near which member of its family a P of switches begins.
enum class FirstSwitches {
  kIdentity,
  kRandom,  ///< a member of its own for each group, drawn at random
};

template <>
struct EnumNames<FirstSwitches> {
  static constexpr std::array names{std::pair{FirstSwitches::kIdentity, "identity"},
                                    std::pair{FirstSwitches::kRandom, "random"}};
};

/// Options of a family of switches. Adam moves a logit by at most about `lr` a step, and half of
/// them have some 3 to go; entries of a matrix have at most 1, so their rate is lower.
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

/// Products of soft steps p Π + (1 - p) I, each of which applies a fixed permutation Π with a
/// probability p, the sigmoid of a logit. The logits, called switches, are the parameter. P is
/// doubly stochastic whatever they are, and is decoded by rounding every p. A step takes time and
/// memory in proportion to the weight that is permuted; P itself is never formed.
///
/// First values: with all p at 1/2 most families give the mean of all members of a group, through
/// which a layer learns nothing; with all p at 0 or 1 no switch moves. So each p is near 0 (or 1,
/// where the member begun with has the switch on), as far as leaves a share `mix` of P on the paths
/// of that member, and differs by a random factor.
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
  /// How a recipe names it, and the fewest members of a group, a power of 2.
  virtual std::string_view name() const = 0;
  virtual int64_t least_side() const = 0;
  /// s of a parameter.
  virtual int64_t side_of(const torch::Tensor& logit_uG) const = 0;
  /// Switches that each member passes.
  virtual int64_t num_passed(int64_t side) const = 0;
  /// P x, or Pᵀ x if transposed, along the dimension s of x [u, G, a, s, b].
  virtual torch::Tensor switched(const torch::Tensor& probability_uG, const torch::Tensor& x_uGasb,
                                 bool is_transposed) const = 0;
  /// Which switches are on, 0 or 1, in a member drawn for each group. Shaped like the parameter.
  virtual torch::Tensor random_switches(const torch::Tensor& logit_G,
                                        const Stream& stream) const = 0;

 private:
  FirstSwitches near_;
};

/// log2 of a power of 2.
int64_t log2_of(int64_t side);

}  // namespace shoal
