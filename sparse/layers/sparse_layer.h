#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/module/parameter.h"
#include "sparse/patterns/pattern.h"

namespace shoal {

/// A sparse trained weight: one matrix, or a stack of matrices with a mask each.
struct SparseLayer {
  /// The mask of a weight is saved under this prefix + the weight's name.
  static constexpr const char* kMaskPrefix = "sparsity.mask.";

  Parameter parameter;
  /// True if a matrix is stored as [inputs, outputs], as in experts; else [outputs, inputs...].
  bool is_transposed = false;
  double density = 1.0;  ///< requested share of nonzero weights
  std::shared_ptr<const Pattern> pattern;

  int64_t num_matrices() const { return parameter.is_stacked() ? parameter.tensor.size(0) : 1; }
  /// A view [m, n] of one matrix of a tensor that has the parameter's shape.
  torch::Tensor matrix(const torch::Tensor& like_parameter, int64_t index) const;
  /// Name of one matrix in logs and checkpoints.
  std::string name_of(int64_t index) const;
};

}  // namespace shoal
