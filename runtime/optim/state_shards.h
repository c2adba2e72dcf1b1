#pragma once

#include <torch/types.h>

#include <vector>

namespace shoal {

/// What an optimizer of pieces needs from the ranks that hold the other pieces of its matrices.
/// Lists have an entry for each of its pieces, in their order. Every call is collective.
class StateShards {
 public:
  virtual ~StateShards() = default;
  /// Where all tensors are.
  virtual torch::Device device() const = 0;
  /// Adds up over ranks, in place, the rows of `values_PN` that belong to pieces of one matrix.
  virtual void sum(torch::Tensor values_PN) = 0;
  /// The cut matrices whole, flat, from each piece's elements: defined for pieces that hold a
  /// matrix's first element.
  virtual std::vector<torch::Tensor> gather(const std::vector<torch::Tensor>& pieces) = 0;
  /// The reverse: fills the pieces of cut matrices.
  virtual void scatter(const std::vector<torch::Tensor>& wholes,
                       const std::vector<torch::Tensor>& pieces) = 0;
};

}  // namespace shoal
