#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/gradients/gradient_norm.h"
#include "parallel/gradients/gradient_sync.h"
#include "runtime/module/parameter.h"
#include "runtime/optim/state_shards.h"

// P pieces of this rank  N numbers of each piece
namespace shoal {

/// Shards the optimizer's work and state over the ranks that hold copies of a parameter (ZeRO stage
/// 1): of n such ranks, rank r updates the r-th of n equal ranges of each gradient bucket, and then
/// all ranks gather the weights. Source: Rajbhandari et al. 2020 (ZeRO).
///
/// Weights move into flat tensors laid out like the gradient buckets, and parameters become views
/// of them. A rank's shard of a bucket is thus one range of elements, which may cut a matrix (a
/// parameter, or one expert's part of an expert stack):
///
///     bucket  | head.bias | experts.7 | experts.9 | stem.weight     | padding |
///     shards  | rank 0            | rank 1                | rank 2            |
///     pieces    head.bias,          experts.7's end,        stem.weight's end
///               experts.7's begin   experts.9,
///                                   stem.weight's begin
///
/// A *piece* is one rank's part of one matrix. A matrix of several pieces is *cut*. The rank of the
/// first piece *owns* the matrix: it saves and loads the matrix's optimizer state in checkpoints.
///
/// Lists of pieces, and so all lists of the optimizer, are ordered by bucket, then by element.
class OptimizerShards : public StateShards {
 public:
  /// `sync` was built with `shards` and outlives this object. No communication.
  explicit OptimizerShards(GradientSync& sync);

  /// Returns this rank's pieces; after sync.reduce() their gradients are the sums over ranks.
  const std::vector<Parameter>& pieces() const { return share_.parameters; }
  /// Returns the pieces as this rank's share of the gradient norm.
  const GradientShare& share() const { return share_; }
  /// Gathers all ranks' updated pieces into the parameters. Collective. Call after the update.
  void gather_weights();

  /// The part of one parameter that this rank updates; may be empty.
  struct Range {
    torch::Tensor gradient;  ///< 1-D: the summed gradient of the elements from `begin` on
    int64_t begin = 0;       ///< first element, counted in the flattened parameter
  };
  /// Throws TORCH_CHECK if no such parameter is trained.
  Range range_of(const std::string& parameter) const;
  /// Joins values of a parameter's elements. `own`: 1-D, one for each element of this rank's Range.
  /// Returns the values of all elements, 1-D. Collective over the ranks with copies.
  torch::Tensor gather_ranges(const std::string& parameter, const torch::Tensor& own) const;

  torch::Device device() const override { return flats_.front().device(); }
  /// Row p holds N numbers of piece p, such as its sum of squares. Replaces each row by the sum of
  /// the rows of all pieces of the same matrix, over all ranks. Collective.
  void sum(torch::Tensor values_PN) override;
  /// `pieces`: a 1-D tensor for each piece. Returns a tensor for each piece: if the piece is
  /// the first of a cut matrix, the whole matrix, 1-D; undefined otherwise. Collective.
  std::vector<torch::Tensor> gather(const std::vector<torch::Tensor>& pieces) override;
  /// Inverts gather: fills `pieces` of cut matrices from the owners' `wholes`. Collective.
  void scatter(const std::vector<torch::Tensor>& wholes,
               const std::vector<torch::Tensor>& pieces) override;

 private:
  struct Matrix {
    std::string name;
    std::string parameter;  ///< parameter the matrix belongs to
    std::vector<int64_t> sizes;
    int64_t begin;  ///< first element in the bucket
    int64_t place;  ///< index of its parameter in the list of all parameters
  };
  struct CutMatrix {
    int64_t owner = 0;
    std::vector<int64_t> lengths;  ///< lengths of the pieces of ranks owner, owner + 1, ...
    size_t piece = 0;              ///< index of this rank's piece, if it has one
  };
  /// The cut matrices of buckets reduced over `replicas`; equal on all its ranks.
  struct Cuts {
    Communicator* replicas;
    std::vector<CutMatrix> matrices;
  };
  /// Elements of a cut matrix, from `begin` on, that move between this rank and `peer`. Transfers
  /// are sorted by peer, then by matrix, as an all-to-all needs them.
  struct Transfer {
    size_t matrix, piece;  ///< index of the matrix, and of this rank's piece of it
    int64_t begin, length, peer;
  };
  /// The bucket and the slot that hold a parameter.
  struct Located {
    const GradientSync::Bucket& bucket;
    const GradientSync::Slot& slot;
    /// The slot's elements in a rank's shard; `begin` is counted from the start of the bucket.
    struct Part {
      int64_t begin, length;
    };
    Part part_of(int64_t rank) const;
  };

  void add_slot(const GradientSync::Bucket& bucket, const GradientSync::Slot& slot);
  void add_matrix(const GradientSync::Bucket& bucket, const Matrix& matrix);
  Cuts& cuts_of(Communicator* replicas);
  Located locate(const std::string& parameter) const;
  /// Lists this rank's pieces of cut matrices; the peers are the owners of the matrices.
  static std::vector<Transfer> own_pieces(const Cuts& cuts);
  /// Lists all pieces of the matrices that this rank owns; the peers are the ranks of the pieces.
  static std::vector<Transfer> owned_pieces(const Cuts& cuts);
  /// Returns a flat view of a transfer's elements.
  using ElementsOf = std::function<torch::Tensor(const Transfer&)>;
  /// Sends the elements of `out` from `source`, receives those of `in` into `target`. Collective.
  void move_elements(const Cuts& cuts, const std::vector<Transfer>& out, const ElementsOf& source,
                     const std::vector<Transfer>& in, const ElementsOf& target) const;

  std::vector<torch::Tensor> flats_;  ///< weights, one a bucket
  std::vector<const GradientSync::Bucket*> buckets_;
  GradientShare share_;
  std::vector<Cuts> cuts_;
};

}  // namespace shoal
