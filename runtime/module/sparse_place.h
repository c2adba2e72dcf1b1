#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace shoal {

/// A weight that may be trained sparse: a matrix, or a stack of them.
struct SparsePlace {
  torch::Tensor weight;
  bool is_transposed = false;  ///< matrices are [inputs, outputs], else [outputs, inputs]
  int64_t copies = 1;          ///< matrices of the stack, over all ranks
};

/// A module with weights that may be trained sparse.
class HasSparsePlaces {
 public:
  virtual ~HasSparsePlaces() = default;
  /// Lists weights of the module itself, and none of the modules inside it.
  virtual std::vector<SparsePlace> sparse_places() const = 0;
};

/// Marks a module that stays dense with all modules inside it, such as a router.
class StaysDense {
 public:
  virtual ~StaysDense() = default;
};

}  // namespace shoal
