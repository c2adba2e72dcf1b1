#pragma once

#include <torch/types.h>

#include <vector>

#include "moe/experts/expert_mlp.h"

namespace shoal::testing {

/// Which weights experts have.
struct ExpertKind {
  bool bias = true, gate = false;
};
inline constexpr ExpertKind kExpertKinds[] = {
    {true, false}, {false, false}, {true, true}, {false, true}};

inline std::vector<torch::Tensor> tensors_of(const ExpertWeights& weights) {
  std::vector<torch::Tensor> result{weights.fc1_weight, weights.fc2_weight};
  for (const torch::Tensor& tensor :
       {weights.fc1_bias, weights.fc2_bias, weights.gate_weight, weights.gate_bias}) {
    if (tensor.defined()) result.push_back(tensor);
  }
  return result;
}

}  // namespace shoal::testing
