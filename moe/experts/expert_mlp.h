#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "moe/kernels/permute_rows.h"
#include "moe/kernels/unit_rows.h"
#include "runtime/kernels/bias_activation.h"

// T tokens  A rows of tokens  R rows  D width in  H hidden width  O width out  u experts
namespace shoal {

/// Shared gradients of a stack, which its parts write into.
struct StackGradients;
struct GradientsOfPart {
  std::shared_ptr<StackGradients> stack;  ///< nullptr: each gradient is a tensor of its own
  UnitRange range = {};
};

/// The layers of stacked experts. Biases may be undefined, all or none; likewise the gate.
struct ExpertWeights {
  torch::Tensor fc1_weight;        ///< [u, D, H]
  torch::Tensor fc1_bias;          ///< [u, H]
  torch::Tensor fc2_weight;        ///< [u, H, O]
  torch::Tensor fc2_bias;          ///< [u, O]
  torch::Tensor gate_weight = {};  ///< [u, D, H]
  torch::Tensor gate_bias = {};    ///< [u, H]
  GradientsOfPart gradients = {};

  /// Pointers to the tensors, in the order in which operators pass them as a list; undefined
  /// tensors keep their place in it.
  static constexpr std::array<torch::Tensor ExpertWeights::*, 6> members() {
    using Self = ExpertWeights;
    return {&Self::fc1_weight, &Self::fc1_bias,    &Self::fc2_weight,
            &Self::fc2_bias,   &Self::gate_weight, &Self::gate_bias};
  }
  std::vector<torch::Tensor> to_list() const;
  static ExpertWeights of_list(at::TensorList list);
};

/// Views of `num_parts` parts (part_of) of the experts, made by one node of the autograd graph:
/// expert_mlp of a part writes its gradients straight into those of the whole stack. For one
/// forward and backward pass.
std::vector<ExpertWeights> split_experts(const ExpertWeights& weights, int64_t num_parts);

/// act(x W1 + b1) W2 + b2, or with a gate (act(x Wg + bg) * (x W1 + b1)) W2 + b2, with the weights
/// of each row's expert, times the row's weight_R if defined; rows are sorted by expert, and
/// rows_u[i] of them belong to expert i. [R, D] -> [R, O].
///
/// One node of the autograd graph: each gradient is written once, without indexing the stack, and
/// gradients of experts without rows are exactly zero. Saved for the backward pass are the rows and
/// the inputs of the activation; the rest is recomputed. float32, float64 or bfloat16; with
/// bfloat16 rows the experts' weights may be float32: they are cast, and their gradients are
/// float32. weight_R is applied in float32 at least, before the second layer. On a GPU trailing
/// padding rows are ignored; their outputs and gradients are unspecified. Counts that are only on
/// the GPU are not copied to the host if LibTorch has a grouped product: bfloat16, widths that are
/// multiples of 8, compute capability 9 or 10. Otherwise they are copied once for both passes.
/// TORCH_CHECK on sizes that do not fit, and on weights that are not contiguous or of another
/// dtype. Source of the gate: Shazeer 2020 (GLU variants), equation 6.
torch::Tensor expert_mlp(const torch::Tensor& rows_RD, const UnitRows& rows_u,
                         const ExpertWeights& weights, Activation activation,
                         const torch::Tensor& weight_R = {});

/// sum_rows(expert_mlp(gather_rows(x_TD, index), ..., weight_A), index): [T, D] -> [T, O]. One node
/// of the graph, which saves the tokens but neither their rows nor the experts' outputs: for a
/// token with K rows its own D values and K H pre-activations, with a gate 2 K H.
torch::Tensor expert_mlp_of_tokens(const torch::Tensor& x_TD, const TokenRows& rows,
                                   const ExpertWeights& weights, Activation activation);

}  // namespace shoal
