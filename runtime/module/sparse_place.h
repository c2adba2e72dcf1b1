#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace shoal {

/// A weight that the recipe's section `sparsity` may train sparse: a matrix, or one per expert.
struct SparsePlace {
  torch::Tensor weight;
  bool is_transposed = false;  ///< matrices are [inputs, outputs], else [outputs, inputs]
  int64_t copies = 1;          ///< number of experts in the stack, over all ranks
};

/// A module with weights that may be trained sparse.
class HasSparsePlaces {
 public:
  virtual ~HasSparsePlaces() = default;
  /// Lists the weights of the module itself, without those of its submodules.
  virtual std::vector<SparsePlace> sparse_places() const = 0;
};

/// Marks a module, such as a router, that is never trained sparse, nor are its submodules.
class StaysDense {
 public:
  virtual ~StaysDense() = default;
};

}  // namespace shoal
