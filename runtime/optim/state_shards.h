#pragma once

#include <torch/types.h>

#include <vector>

namespace shoal {

/// Exchanges optimizer state with the ranks that hold the other pieces of a matrix. Lists have an
/// entry for each piece of this rank, in order. Every call is collective.
class StateShards {
 public:
  virtual ~StateShards() = default;
  /// Device of all tensors.
  virtual torch::Device device() const = 0;
  /// Sums rows of `values_PN` in place over all pieces of the same matrix, on all ranks.
  virtual void sum(torch::Tensor values_PN) = 0;
  /// The cut matrices, whole and flat, put together from their pieces: defined for pieces that hold
  /// a matrix's first element.
  virtual std::vector<torch::Tensor> gather(const std::vector<torch::Tensor>& pieces) = 0;
  /// Reverse of gather: fills the pieces of cut matrices.
  virtual void scatter(const std::vector<torch::Tensor>& wholes,
                       const std::vector<torch::Tensor>& pieces) = 0;
};

}  // namespace shoal
