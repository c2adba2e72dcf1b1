#pragma once

#include <torch/types.h>

#include <cstdint>

#include "runtime/random/random_stream.h"

// G matrices  s side of a matrix
namespace shoal {

/// Doubly stochastic matrices M [..., s, s] that are trained towards permutations: M x in place of
/// P x, where (P x)_i = x_{p(i)} and p(i) is the column of the 1 in row i of P. Source: Lyu et al.
/// 2020 (AutoShuffleNet), which PA-DST follows (equations 13 and 14).

/// `mix` · identity + (1 - mix) · random entries of mean 1 / s, projected. Training cannot start
/// from the identity, where the penalty is least, nor from equal entries, which all have the same
/// gradient.
void fill_soft_permutation(const torch::Tensor& out_ss, double mix, const Stream& stream);

/// Sets negative entries to zero, then divides columns and rows by their sums, unless these are
/// zero. Afterwards rows sum to 1, columns nearly. In place.
void project_soft_permutation(const torch::Tensor& m_Gss);

/// Distance of each matrix from a permutation, in [0, 1]: sums over rows and columns of the L1 norm
/// less the L2 norm, divided by their value for equal entries. [...].
torch::Tensor soft_permutation_penalty(const torch::Tensor& m_Gss);
/// Derivative of the penalty by each entry, for entries >= 0.
torch::Tensor soft_permutation_penalty_gradient(const torch::Tensor& m_Gss);

}  // namespace shoal
