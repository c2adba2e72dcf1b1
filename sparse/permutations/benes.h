#pragma once

#include <cstdint>
#include <vector>

#include "sparse/permutations/switch_family.h"

namespace shoal {

/// Soft permutations by Beneš networks (sparsity.permutation: benes). Each group of s inputs or
/// outputs of a layer, its members, passes 2 log2(s) - 1 stages of s / 2 switches. A switch of two
/// members exchanges them with probability p = sigmoid(parameter): x becomes (1 - p) x + p y, and y
/// (1 - p) y + p x. The distance of x and y is s / 2, s / 4, … 1, … s / 4, s / 2 in successive
/// stages. Switches reach every permutation, most in several ways.
///
/// Parameters [u matrices, G groups, stages, s / 2]: switches in order of their lower members. Not
/// in PA-DST, whose kaleidoscopes reach few permutations. Source: Beneš 1965, "Mathematical theory
/// of connecting networks and telephone traffic".
class Benes : public SwitchFamily {
 public:
  using SwitchFamily::SwitchFamily;
  std::vector<int64_t> shape(int64_t side) const override {
    return {2 * log2_of(side) - 1, side / 2};
  }

 protected:
  std::string_view name() const override { return "benes"; }
  int64_t least_side() const override { return 2; }
  int64_t side_of(const torch::Tensor& logit_uG) const override { return 2 * logit_uG.size(-1); }
  int64_t num_passed(int64_t side) const override { return 2 * log2_of(side) - 1; }  ///< stages
  torch::Tensor switched(const torch::Tensor& probability_uG, const torch::Tensor& x_uGasb,
                         bool is_transposed) const override;
  torch::Tensor random_switches(const torch::Tensor& logit_G, const Stream& stream) const override;
};

/// Returns the switch settings [2 log2(s) - 1][s / 2], true to swap, of a Beneš network with (P
/// x)_i = x_{p(i)}, in O(s log s). `index`: p, a permutation of 0 to s - 1, where s is 2, 4, 8, …
/// Source: Opferman and Tsao-Wu 1971, "On a class of rearrangeable switching networks", looping.
std::vector<std::vector<bool>> benes_switches(const std::vector<int64_t>& index);

}  // namespace shoal
