#pragma once

#include <torch/types.h>

#include <cstdint>

#include "moe/kernels/unit_rows.h"

// T tokens  A rows sent  D width  R rows received  u units
namespace shoal {

// A row is one token on its way to one unit (expert) of a MoE layer; padding rows have no token.
// These operators gather rows from tokens and sum rows back into tokens.

/// Maps rows to their tokens, and back. A token may have any number of rows, also none.
struct RowIndex {
  torch::Tensor token_A;  ///< int64, token of each row; -1: padding row
  /// int64 [T + 1]: the rows of token t are row_A[first_T1[t]] to row_A[first_T1[t + 1] - 1].
  torch::Tensor first_T1;
  /// int64: each token's rows, in the order of summation. On a GPU unspecified ones may follow.
  torch::Tensor row_A;
  int64_t num_tokens() const { return first_T1.size(0) - 1; }
};

/// The rows of a MoE layer on one rank, sorted by unit.
struct TokenRows {
  RowIndex index;          ///< token of each row
  torch::Tensor weight_A;  ///< combine weights: factors of the units' outputs, differentiable
  UnitRows rows_u;         ///< rows of each unit
};

/// Makes the index of rows of tokens token_A (-1: padding). A token's rows are listed in order.
/// TORCH_CHECK unless entries are in [-1, num_tokens); on a GPU the kernel fails with an error.
RowIndex make_row_index(const torch::Tensor& token_A, int64_t num_tokens);

/// Returns rows[index[i]] as row i, zero where index[i] is -1. Not differentiable.
torch::Tensor take_rows(const torch::Tensor& rows, const torch::Tensor& index);

/// Copies tokens to rows: row a of the result [A, D] is x_TD[token_A[a]], zero for padding.
/// Differentiable; the gradient of a token is the sum over its rows in the order of the index.
torch::Tensor gather_rows(const torch::Tensor& x_TD, const RowIndex& index);

/// Sums rows by token: row t of the result [T, D] is the sum of weight_A[a] * rows_AD[a] over token
/// t's rows a, in the order of the index; zero without rows. Padding rows are not read, and get
/// zero gradients. Differentiable in rows and weights. Weights and sums of bfloat16 rows are
/// float32, rounded once. If the units have applied the weights, use sum_rows.
torch::Tensor combine_rows(const torch::Tensor& rows_AD, const torch::Tensor& weight_A,
                           const RowIndex& index);

/// combine_rows with weights of 1; saves only the index. Its backward pass is gather_rows.
torch::Tensor sum_rows(const torch::Tensor& rows_AD, const RowIndex& index);

/// Returns rows x_RD[order_R[i]]. order_R is a permutation, inverse_R its inverse. Differentiable.
torch::Tensor permute_rows(const torch::Tensor& x_RD, const torch::Tensor& order_R,
                           const torch::Tensor& inverse_R);

}  // namespace shoal
