#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "moe/kernels/permute_rows.h"
#include "moe/kernels/unit_rows.h"
#include "runtime/kernels/activation.h"

// T tokens  A rows of tokens  R rows  D width in  H hidden width  O width out  u experts
namespace shoal {

/// Gradients of a whole stack of experts, into which backward passes on parts of the stack write.
struct StackGradients;
/// Where expert_mlp writes the gradients of one part.
struct GradientsOfPart {
  std::shared_ptr<StackGradients> stack;  ///< nullptr: new tensors
  UnitRange range = {};                   ///< the part's experts in the stack
};

/// The weights of stacked MLP experts. The gate is optional; all biases are defined or none.
struct ExpertWeights {
  torch::Tensor fc1_weight;        ///< [u, D, H]
  torch::Tensor fc1_bias;          ///< [u, H]
  torch::Tensor fc2_weight;        ///< [u, H, O]
  torch::Tensor fc2_bias;          ///< [u, O]
  torch::Tensor gate_weight = {};  ///< [u, D, H]
  torch::Tensor gate_bias = {};    ///< [u, H]
  GradientsOfPart gradients = {};

  /// Pointers to the tensors, in the order of to_list; undefined ones keep their place.
  static constexpr std::array<torch::Tensor ExpertWeights::*, 6> members() {
    using Self = ExpertWeights;
    return {&Self::fc1_weight, &Self::fc1_bias,    &Self::fc2_weight,
            &Self::fc2_bias,   &Self::gate_weight, &Self::gate_bias};
  }
  /// Returns a copy with `change(tensor)` in place of each tensor that is defined.
  template <class Change>
  ExpertWeights changed(const Change& change) const {
    ExpertWeights result = *this;
    for (const auto member : members()) {
      torch::Tensor& tensor = result.*member;
      if (tensor.defined()) tensor = change(tensor);
    }
    return result;
  }
  std::vector<torch::Tensor> to_list() const;
  static ExpertWeights of_list(at::TensorList list);
};

/// Returns views of `num_parts` runs of neighbouring experts, so that expert_mlp on one run can
/// overlap with the exchange of another run's rows. Backward passes write straight into the whole
/// stack's gradients; a run without a backward pass gets zeros. Call once per forward pass.
std::vector<ExpertWeights> split_experts(const ExpertWeights& weights, int64_t num_parts);

/// MLP experts of a MoE layer (grouped GEMMs). For each row computes act(x W1 + b1) W2 + b2 or,
/// with a gate, (act(x Wg + bg) * (x W1 + b1)) W2 + b2 with the weights of the row's expert, times
/// weight_R if defined: [R, D] -> [R, O]. A row is one token sent to one expert. Rows are sorted by
/// expert; UnitRows holds each expert's number of rows, on the host or only on the GPU.
///
/// One autograd node: each gradient is written once, and gradients of experts without rows are
/// exactly zero. Saves the rows and the inputs of the activation for the backward pass; the rest is
/// recomputed. float32, float64 or bfloat16; with bfloat16 rows the experts' weights may be
/// float32: they are cast, and their gradients are float32. weight_R is applied in float32 at
/// least, before the second layer. On a GPU trailing padding rows are ignored; their outputs and
/// gradients are unspecified. Counts that are only on the GPU are not copied to the host if
/// LibTorch has a grouped product: bfloat16, at most 1,023 experts, compute capability 9 or 10; it
/// copies rows and weights of widths that are not multiples of 8. Otherwise counts are copied once
/// for both passes, and neighbouring experts share a batch of products if their rows are about as
/// many. TORCH_CHECK on sizes that do not fit, and on weights not contiguous or of another dtype.
/// Gate: Shazeer 2020 (GLU variants), equation 6.
torch::Tensor expert_mlp(const torch::Tensor& rows_RD, const UnitRows& rows_u,
                         const ExpertWeights& weights, Activation activation,
                         const torch::Tensor& weight_R = {});

/// Gathers each row's token, applies expert_mlp and sums by token: [T, D] -> [T, O]. TokenRows:
/// each row's token (index) and combine weight (weight_A), each expert's number of rows (rows_u).
/// One autograd node. Saves x_TD and H pre-activations per row (with a gate 2 H), but no rows.
torch::Tensor expert_mlp_of_tokens(const torch::Tensor& x_TD, const TokenRows& rows,
                                   const ExpertWeights& weights, Activation activation);

}  // namespace shoal
