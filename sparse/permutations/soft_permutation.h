#pragma once

#include <torch/types.h>

#include <cstdint>

#include "runtime/random/random_stream.h"

// G matrices  s their side
namespace shoal {

/// Doubly stochastic matrices [..., s, s] that are trained towards permutations: M x in place of
/// P x, with (P x)_i = x_{p(i)} where p(i) is the column of row i's one.
/// Source: Lyu et al. 2020 (AutoShuffleNet), which PA-DST follows (equations 13 and 14).

/// `mix` · identity + (1 - mix) · random entries of mean 1 / s, projected. Neither the identity
/// nor equal entries can begin a training: one is where the penalty is least, at the other every
/// gradient is the same.
void fill_soft_permutation(const torch::Tensor& out_ss, double mix, const Stream& stream);

/// Negative entries become zero, then columns and rows are divided by their sums; a sum of zero
/// divides nothing. Rows sum to 1, columns nearly. In place.
void project_soft_permutation(const torch::Tensor& m_Gss);

/// How far a matrix is from a permutation, in [0, 1]: sums over rows and columns of the L1 norm
/// less the L2 norm, divided by those of equal entries. [...].
torch::Tensor soft_permutation_penalty(const torch::Tensor& m_Gss);
/// Its derivative by each entry, for entries >= 0.
torch::Tensor soft_permutation_penalty_gradient(const torch::Tensor& m_Gss);

}  // namespace shoal
