#pragma once

#include "sparse/permutations/soft_family.h"

namespace shoal {

/// Family with P itself as the parameter, a doubly stochastic matrix (soft_permutation.h) of s²
/// numbers. It reaches every permutation.
class DoublyStochastic : public SoftFamily {
 public:
  std::string misfit(const Grouping& grouping) const override;
  std::vector<int64_t> shape(int64_t side) const override { return {side, side}; }
  void fill(const torch::Tensor& m_Gss, double mix, const Stream& stream) const override;
  /// Equal to the average share of the other entries of a row: with more, the identity would be the
  /// nearest permutation, to which the penalty then leads.
  double usual_mix(int64_t side) const override { return 1.0 / static_cast<double>(side); }
  torch::Tensor product(const torch::Tensor& m_uGss, const torch::Tensor& x_uG,
                        Factor factor) const override;
  void project(const torch::Tensor& m_uGss) const override;
  torch::Tensor penalty(const torch::Tensor& m_uGss) const override;
  torch::Tensor penalty_gradient(const torch::Tensor& m_uGss) const override;
  /// The permutation that selects the largest sum of P's entries.
  torch::Tensor index(const torch::Tensor& m_uGss) const override;
  torch::Tensor squared_distance(const torch::Tensor& m_uGss) const override;
};

}  // namespace shoal
