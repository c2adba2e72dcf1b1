#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/module/parameter.h"
#include "sparse/patterns/pattern.h"

namespace shoal {

/// A sparse trained weight: one matrix, or a stack of matrices (experts) with a mask each.
struct SparseLayer {
  /// Prefix of the mask's name in checkpoints, before the weight's name.
  static constexpr const char* kMaskPrefix = "sparsity.mask.";

  Parameter parameter;
  /// True if a matrix is stored as [inputs, outputs], as for experts; else [outputs, inputs...].
  bool is_transposed = false;
  double density = 1.0;  ///< target density
  std::shared_ptr<const Pattern> pattern;

  int64_t num_matrices() const { return parameter.is_stacked() ? parameter.tensor.size(0) : 1; }
  /// Returns matrix `index` of a tensor with the parameter's shape, as a view [outputs, inputs].
  torch::Tensor matrix(const torch::Tensor& like_parameter, int64_t index) const {
    const torch::Tensor one = parameter.is_stacked() ? like_parameter[index] : like_parameter;
    const torch::Tensor matrix = one.view({one.size(0), -1});
    return is_transposed ? matrix.t() : matrix;
  }
  /// Broadcasts values per cell of each matrix, [u, C], to the parameter's shape.
  torch::Tensor expand(const torch::Tensor& value_uC) const {
    const torch::Tensor result = torch::empty(parameter.tensor.sizes(), value_uC.options());
    for (int64_t i = 0; i < num_matrices(); ++i) {
      matrix(result, i).copy_(pattern->expand(value_uC[i]));
    }
    return result;
  }
  /// Name of matrix `index` in logs and checkpoints. In a stack, with the expert's global number.
  std::string name_of(int64_t index) const { return name_of_row(parameter, index); }
};

}  // namespace shoal
