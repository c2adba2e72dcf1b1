#pragma once

#include "sparse/permutations/permutation_method.h"
#include "sparse/permutations/soft_family.h"

// u matrices of a stack  G groups of permuted inputs or outputs  s members of a group
namespace shoal {

/// Soft permutations that a recipe chooses by `sparsity.permutation: learned`. The parameter is P
/// itself, a doubly stochastic matrix M per group, which a penalty trains towards a permutation p,
/// with a 1 in row i and column p(i). M can become any permutation.
///
/// Source: PA-DST, section 4 and equations 13 and 14; Lyu et al. 2020 (AutoShuffleNet). Differs:
/// the penalty is divided by its largest value, first values are mixed, and the nearest permutation
/// is an assignment, because the largest entries of the rows need not form a permutation.
class DoublyStochastic : public SoftFamily {
 public:
  using Options = LearningOptions;
  static constexpr bool kIsMatrix = true;
  explicit DoublyStochastic(const Options& /*options*/ = {}) {}

  std::string misfit(const Grouping& grouping) const override;  ///< why groups do not fit; or ""
  std::vector<int64_t> shape(int64_t side) const override { return {side, side}; }
  /// Initialises M: `mix` · identity + (1 - mix) · random entries of mean 1 / s, projected.
  /// Training cannot start at the identity, where the penalty is minimal, nor at equal entries,
  /// which all have equal gradients.
  void fill(const torch::Tensor& m_Gss, double mix, const Stream& stream) const override;
  /// Default share of the identity in the initial P: 1 / s, about the mean of the random entries.
  /// With a larger share, the penalty would draw P to the identity as the nearest permutation.
  double usual_mix(int64_t side) const override { return 1.0 / static_cast<double>(side); }
  torch::Tensor product(const torch::Tensor& m_uGss, const torch::Tensor& x_uG,
                        Factor factor) const override;
  /// Projects in place, after each update: negative entries become 0, then columns and rows are
  /// divided by their sums, unless a sum is 0. Afterwards rows sum to 1, and columns nearly.
  void project(const torch::Tensor& m_uGss) const override;
  /// Distance of each matrix [..., s, s] from a permutation, [...] in [0, 1]: L1 norm minus L2
  /// norm, summed over rows and columns, and normalised to 1 for equal entries.
  torch::Tensor penalty(const torch::Tensor& m_uGss) const override;
  /// Derivative of the penalty by each entry, for entries >= 0.
  torch::Tensor penalty_gradient(const torch::Tensor& m_uGss) const override;
  /// Returns the nearest permutations p, which have the largest sum of P's entries (i, p(i)).
  torch::Tensor index(const torch::Tensor& m_uGss) const override;
  torch::Tensor squared_distance(const torch::Tensor& m_uGss) const override;  ///< ‖P - I‖_F² [u]
};

}  // namespace shoal
