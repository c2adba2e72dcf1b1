#include "sparse/layers/sparse_layer.h"

namespace shoal {

torch::Tensor SparseLayer::matrix(const torch::Tensor& like_parameter, int64_t index) const {
  const torch::Tensor one = parameter.is_stacked() ? like_parameter[index] : like_parameter;
  const torch::Tensor matrix = one.view({one.size(0), -1});
  return is_transposed ? matrix.t() : matrix;
}

torch::Tensor SparseLayer::expand(const torch::Tensor& value_uC) const {
  const torch::Tensor result = torch::empty(parameter.tensor.sizes(), value_uC.options());
  for (int64_t i = 0; i < num_matrices(); ++i) {
    matrix(result, i).copy_(pattern->expand(value_uC[i]));
  }
  return result;
}

}  // namespace shoal
