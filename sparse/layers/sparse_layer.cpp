#include "sparse/layers/sparse_layer.h"

namespace shoal {

torch::Tensor SparseLayer::matrix(const torch::Tensor& like_parameter, int64_t index) const {
  const torch::Tensor one = parameter.is_stacked() ? like_parameter[index] : like_parameter;
  const torch::Tensor matrix = one.view({one.size(0), -1});
  return is_transposed ? matrix.t() : matrix;
}

std::string SparseLayer::name_of(int64_t index) const {
  if (!parameter.is_stacked()) return parameter.name;
  return name_of_unit(parameter.name, parameter.unit_ids[static_cast<size_t>(index)]);
}

}  // namespace shoal
