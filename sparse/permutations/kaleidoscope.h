#pragma once

#include "sparse/permutations/switch_family.h"

namespace shoal {

/// Soft permutations of kaleidoscope layers (sparsity.permutation: kaleidoscope). A group has s
/// members, inputs or outputs of a layer. In blocks of s, s / 2, … 4 members in turn, it passes
/// three switches, which all blocks of a size share: move even members before odd ones, reverse the
/// first half, reverse the second half. A soft switch with p = sigmoid(parameter) returns p times
/// the moved members plus 1 - p times the unmoved. Switches reach at most 2^(3 (log2(s) - 1)) of
/// the s! permutations, among them the identity and bit reversal.
///
/// Parameters [u matrices, G groups, log2(s) - 1, 3]. Source: Dao et al. 2019, "Learning fast
/// algorithms for linear transforms using butterfly factorizations", and HazyResearch/butterfly; as
/// there, blocks of 2 have no switches. PA-DST's baseline KaleidoscopePerm. Differs: initialisation
/// (SwitchFamily), and the penalty, by which layers become hard one by one.
class Kaleidoscope : public SwitchFamily {
 public:
  using SwitchFamily::SwitchFamily;
  std::vector<int64_t> shape(int64_t side) const override { return {log2_of(side) - 1, 3}; }

 protected:
  std::string_view name() const override { return "kaleidoscope"; }
  int64_t least_side() const override { return 4; }
  int64_t side_of(const torch::Tensor& logit_uG) const override {
    return int64_t{1} << (logit_uG.size(-2) + 1);
  }
  /// For each size of block, a member passes the first switch and the switch of its half.
  int64_t num_passed(int64_t side) const override { return 2 * (log2_of(side) - 1); }
  torch::Tensor switched(const torch::Tensor& probability_uG, const torch::Tensor& x_uGasb,
                         bool is_transposed) const override;
  torch::Tensor random_switches(const torch::Tensor& logit_G, const Stream& stream) const override;
};

}  // namespace shoal
