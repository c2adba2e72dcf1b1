#pragma once

#include "sparse/permutations/soft_family.h"

// u matrices of a stack  G groups of permuted inputs or outputs  s members of a group
namespace shoal {

/// Soft permutations that a recipe chooses by `sparsity.permutation: learned`. The parameter is P
/// itself, a doubly stochastic matrix (soft_permutation.h) per group. P can become any permutation.
class DoublyStochastic : public SoftFamily {
 public:
  std::string misfit(const Grouping& grouping) const override;
  std::vector<int64_t> shape(int64_t side) const override { return {side, side}; }
  void fill(const torch::Tensor& m_Gss, double mix, const Stream& stream) const override;
  /// Default share of the identity in the initial P: 1 / s, about the mean of the random entries.
  /// With a larger share, the penalty would draw P to the identity as the nearest permutation.
  double usual_mix(int64_t side) const override { return 1.0 / static_cast<double>(side); }
  torch::Tensor product(const torch::Tensor& m_uGss, const torch::Tensor& x_uG,
                        Factor factor) const override;
  void project(const torch::Tensor& m_uGss) const override;
  torch::Tensor penalty(const torch::Tensor& m_uGss) const override;
  torch::Tensor penalty_gradient(const torch::Tensor& m_uGss) const override;
  /// Returns the nearest permutations p, which have the largest sum of P's entries (i, p(i)).
  torch::Tensor index(const torch::Tensor& m_uGss) const override;
  torch::Tensor squared_distance(const torch::Tensor& m_uGss) const override;
};

}  // namespace shoal
