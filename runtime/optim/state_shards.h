#pragma once

#include <torch/types.h>

#include <vector>

// P pieces on this rank  N numbers for each
namespace shoal {

/// Exchanges optimizer state between ranks if it is sharded (ZeRO-1). A rank then holds flat pieces
/// of matrices; a cut matrix has pieces on several ranks. Lists have an entry for each piece of
/// this rank, in order. Every call but device() is collective: all ranks must call.
class StateShards {
 public:
  virtual ~StateShards() = default;
  /// Device of all tensors.
  virtual torch::Device device() const = 0;
  /// Replaces each row of `values_PN` by the sum of the rows of all pieces of its matrix, on all
  /// ranks; for norms of whole matrices.
  virtual void sum(torch::Tensor values_PN) = 0;
  /// Puts cut matrices together. If piece i is the first of a matrix cut into several, entry i is
  /// the whole matrix, flat. All other entries are undefined.
  virtual std::vector<torch::Tensor> gather(const std::vector<torch::Tensor>& pieces) = 0;
  /// Reverse of gather: fills the pieces of cut matrices from `wholes`.
  virtual void scatter(const std::vector<torch::Tensor>& wholes,
                       const std::vector<torch::Tensor>& pieces) = 0;
};

}  // namespace shoal
