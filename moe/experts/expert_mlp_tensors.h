#pragma once

#include <torch/types.h>

#include <array>
#include <vector>

// R rows  D width in  H hidden width  O width out  u experts
namespace shoal {

/// Operators pass lists of tensors; the operators of expert_mlp and their callers read them by the
/// names of these structs. `order` is the order in the list; undefined tensors keep their place.
template <class Named>
std::vector<torch::Tensor> to_list(const Named& named) {
  std::vector<torch::Tensor> list;
  for (const auto member : Named::order()) list.push_back(named.*member);
  return list;
}

template <class Named>
Named from_list(at::TensorList list) {
  constexpr auto order = Named::order();
  TORCH_CHECK(list.size() == order.size(), "expert_mlp: ", list.size(), " tensors, expected ",
              order.size());
  Named named;
  for (size_t i = 0; i < order.size(); ++i) named.*order[i] = list[i];
  return named;
}

/// Result of expert_mlp_forward. Unless it keeps them for the backward pass, the last two are
/// undefined.
struct ExpertMlpOutput {
  torch::Tensor y;     ///< [R, O]
  torch::Tensor pre;   ///< [R, H]: input of the activation; with a gate, what the gate multiplies
  torch::Tensor gate;  ///< [R, H]: with a gate, input of the activation

  static constexpr auto order() {
    return std::array{&ExpertMlpOutput::y, &ExpertMlpOutput::pre, &ExpertMlpOutput::gate};
  }
};

/// What the backward pass needs. Biases are part of `pre` and `gate`; all else is computed again.
struct ExpertMlpSaved {
  torch::Tensor rows;  ///< [R, D]
  torch::Tensor pre, gate;
  torch::Tensor fc1_weight, fc2_weight, gate_weight, fc2_bias;
  torch::Tensor row_weight;  ///< [R]; undefined: 1

  bool has_gate() const { return gate.defined(); }
  static constexpr auto order() {
    using Self = ExpertMlpSaved;
    return std::array{&Self::rows,       &Self::pre,         &Self::gate,     &Self::fc1_weight,
                      &Self::fc2_weight, &Self::gate_weight, &Self::fc2_bias, &Self::row_weight};
  }
};

/// Result of expert_mlp_backward. Undefined: no such tensor, or its gradient was written in place.
struct ExpertMlpGradients {
  torch::Tensor rows, row_weight;
  torch::Tensor fc1_weight, fc1_bias, fc2_weight, fc2_bias, gate_weight, gate_bias;

  /// Those of the parameters, in the order of the operator's and of the node's arguments.
  static constexpr auto parameters() {
    using Self = ExpertMlpGradients;
    return std::array{&Self::fc1_weight, &Self::fc1_bias,    &Self::fc2_weight,
                      &Self::fc2_bias,   &Self::gate_weight, &Self::gate_bias};
  }
  /// As the node's inputs.
  static constexpr auto order() {
    using Self = ExpertMlpGradients;
    return std::array{&Self::rows,       &Self::row_weight, &Self::fc1_weight,  &Self::fc1_bias,
                      &Self::fc2_weight, &Self::fc2_bias,   &Self::gate_weight, &Self::gate_bias};
  }
};

}  // namespace shoal
