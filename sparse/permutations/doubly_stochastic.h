#pragma once

#include "sparse/permutations/soft_family.h"

namespace shoal {

/// Soft permutations of sparsity.permutation: learned. The parameter is P itself, a doubly
/// stochastic matrix (soft_permutation.h) per group of s inputs or outputs. P can become any order.
class DoublyStochastic : public SoftFamily {
 public:
  std::string misfit(const Grouping& grouping) const override;
  std::vector<int64_t> shape(int64_t side) const override { return {side, side}; }
  void fill(const torch::Tensor& m_Gss, double mix, const Stream& stream) const override;
  /// Default share of the identity in the first P: 1 / s, about as much as P's random entries. With
  /// more, the permutation nearest to P, to which the penalty leads, would be the identity.
  double usual_mix(int64_t side) const override { return 1.0 / static_cast<double>(side); }
  torch::Tensor product(const torch::Tensor& m_uGss, const torch::Tensor& x_uG,
                        Factor factor) const override;
  void project(const torch::Tensor& m_uGss) const override;
  torch::Tensor penalty(const torch::Tensor& m_uGss) const override;
  torch::Tensor penalty_gradient(const torch::Tensor& m_uGss) const override;
  /// Returns the permutations that select the largest sum of P's entries.
  torch::Tensor index(const torch::Tensor& m_uGss) const override;
  torch::Tensor squared_distance(const torch::Tensor& m_uGss) const override;
};

}  // namespace shoal
