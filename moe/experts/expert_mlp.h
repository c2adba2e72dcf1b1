#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "moe/kernels/permute_rows.h"
#include "moe/kernels/unit_rows.h"
#include "runtime/kernels/bias_activation.h"

// T tokens  A rows of tokens  R rows  D width in  H hidden width  O width out  u experts
namespace shoal {

/// Where the gradients of a part of a stack are written.
struct StackGradients;
struct GradientsOfPart {
  std::shared_ptr<StackGradients> stack;  ///< nullptr: in tensors of their own
  UnitRange range = {};
};

/// The layers of stacked experts. Biases may be undefined, all or none; so may the gate.
struct ExpertWeights {
  torch::Tensor fc1_weight;        ///< [u, D, H]
  torch::Tensor fc1_bias;          ///< [u, H]
  torch::Tensor fc2_weight;        ///< [u, H, O]
  torch::Tensor fc2_bias;          ///< [u, O]
  torch::Tensor gate_weight = {};  ///< [u, D, H]
  torch::Tensor gate_bias = {};    ///< [u, H]
  GradientsOfPart gradients = {};
};

/// The part_of the experts for each part, as views, in one node of the autograd graph: expert_mlp
/// of a part writes its gradients straight into those of the whole stack. To be used in one forward
/// and backward pass.
std::vector<ExpertWeights> split_experts(const ExpertWeights& weights, int64_t num_parts);

/// act(x W1 + b1) W2 + b2, or with a gate (act(x Wg + bg) * (x W1 + b1)) W2 + b2, with the weights
/// of each row's expert, times the row's own weight_R if there are such; rows are sorted by expert,
/// and rows_u[i] of them belong to expert i. [R, D] -> [R, O].
///
/// One node of the autograd graph: the stack is never indexed by autograd, each gradient is written
/// once, and those of experts without rows are exactly zero. Kept for the backward pass are the
/// rows and what the activation is applied to; the rest is computed again. float32, float64 or
/// bfloat16; the weights of bfloat16 rows may be float32: they are cast, and their gradients are
/// float32. weight_R is applied in float32 at least, before the second layer. On a GPU rows of no
/// expert may follow, which are not read, and of no meaning in the result and in the gradient;
/// where only the GPU knows rows_u, nothing is copied to the host if LibTorch has a grouped
/// product: of bfloat16 with widths that are multiples of 8, on GPUs of compute capability 9
/// and 10. Else they are copied once for both passes. TORCH_CHECK on sizes that do not fit, and on
/// weights that are not contiguous or of another dtype. Source of the gate: Shazeer 2020 (GLU
/// variants), equation 6.
torch::Tensor expert_mlp(const torch::Tensor& rows_RD, const UnitRows& rows_u,
                         const ExpertWeights& weights, Activation activation,
                         const torch::Tensor& weight_R = {});

/// sum_rows(expert_mlp(gather_rows(x_TD, index), ..., weight_A), index): [T, D] -> [T, O]. One node
/// of the graph, which keeps the tokens and neither their rows nor what experts say of them: of a
/// token with K rows the D of itself and, plain or gated, the K H or 2 K H before the activation.
torch::Tensor expert_mlp_of_tokens(const torch::Tensor& x_TD, const TokenRows& rows,
                                   const ExpertWeights& weights, Activation activation);

}  // namespace shoal
