#pragma once

#include <torch/types.h>

#include <vector>

namespace shoal {

/// The ranks among which pieces of matrices are shared out, as an optimizer sees them. Lists have
/// an entry for each of its pieces, in their order. Every call is collective.
class StateShards {
 public:
  virtual ~StateShards() = default;
  /// Where all tensors are.
  virtual torch::Device device() const = 0;
  /// Adds up, in place, the rows of `values_PN` that belong to pieces of one matrix, over ranks. Of
  /// all pieces; a row is zero where its piece takes no part.
  virtual void sum(torch::Tensor values_PN) = 0;
  /// From each piece's numbers, flat, the cut matrices whole: defined for the pieces that begin
  /// one.
  virtual std::vector<torch::Tensor> gather(const std::vector<torch::Tensor>& pieces) = 0;
  /// The other way round: fills the pieces of cut matrices.
  virtual void scatter(const std::vector<torch::Tensor>& wholes,
                       const std::vector<torch::Tensor>& pieces) = 0;
};

}  // namespace shoal
