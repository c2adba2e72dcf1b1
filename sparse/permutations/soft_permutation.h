#pragma once

#include <torch/types.h>

#include "runtime/random/random_stream.h"

// G matrices  s side of a matrix
namespace shoal {

/// Relaxed permutations: doubly stochastic matrices M [..., s, s] that are trained towards
/// permutation matrices P, with (P x)_i = x_{p(i)}; row i of P has its 1 in column p(i).
/// Source: Lyu et al. 2020 (AutoShuffleNet), which PA-DST follows (equations 13 and 14).

/// Initialises M: `mix` · identity + (1 - mix) · random entries of mean 1 / s, projected. Training
/// cannot start at the identity, where the penalty is minimal, nor at equal entries, which all have
/// equal gradients.
void fill_soft_permutation(const torch::Tensor& out_ss, double mix, const Stream& stream);

/// Projects in place: negative entries become 0, then columns and rows are divided by their sums,
/// unless a sum is 0. Afterwards rows sum to 1, and columns nearly.
void project_soft_permutation(const torch::Tensor& m_Gss);

/// Distance of each matrix from a permutation, [...] in [0, 1]: L1 norm minus L2 norm, summed over
/// rows and columns, and normalised to 1 for equal entries.
torch::Tensor soft_permutation_penalty(const torch::Tensor& m_Gss);
/// Derivative of the penalty by each entry, for entries >= 0.
torch::Tensor soft_permutation_penalty_gradient(const torch::Tensor& m_Gss);

}  // namespace shoal
