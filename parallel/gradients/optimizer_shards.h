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

namespace shoal {

/// Shards the optimizer's work and state over the replicas of each parameter: rank r of n updates
/// the r-th n-th of each bucket, and afterwards all ranks gather the weights.
///
/// Weights move into flat tensors laid out like the gradient buckets, and parameters become views
/// of them. A rank's shard of a bucket is thus one range of elements, and its border may cut a
/// matrix (a parameter, or one unit of a stack):
///
///     bucket  | head.bias | experts.7 | experts.9 | stem.weight     | padding |
///     shards  | rank 0            | rank 1                | rank 2            |
///     pieces    head.bias,          experts.7's end,        stem.weight's end
///               experts.7's begin   experts.9,
///                                   stem.weight's begin
///
/// A *piece* is one rank's part of one matrix. A matrix of several pieces is *cut*; the rank of its
/// first piece *owns* it: checkpoints save and load its optimizer state there.
///
/// Two orders: pieces, and all lists of the optimizer, go by bucket, then by element. Elements that
/// move between the owners of cut matrices and the ranks of their pieces go by peer, then by
/// matrix, as all_to_all needs them. Source: Rajbhandari et al. 2020 (ZeRO), stage 1.
class OptimizerShards : public StateShards {
 public:
  /// `sync` was built with shards and outlives this object.
  explicit OptimizerShards(GradientSync& sync);

  /// This rank's pieces; once `sync` has reduced, their gradients are the sums over replicas.
  const std::vector<Parameter>& pieces() const { return share_.parameters; }
  /// The pieces with the places of their parameters.
  const GradientShare& share() const { return share_; }
  /// Collective. Call after the pieces were updated.
  void gather_weights();

  /// This rank's range of one parameter: the summed gradient of its elements from `begin` on, flat.
  struct Range {
    torch::Tensor gradient;
    int64_t begin = 0;
  };
  /// Throws TORCH_CHECK if no such parameter is trained.
  Range range_of(const std::string& parameter) const;
  /// All elements of a parameter, flat, put together from each rank's range. Collective over its
  /// replicas.
  torch::Tensor gather_ranges(const std::string& parameter, const torch::Tensor& own) const;

  torch::Device device() const override { return flats_.front().device(); }
  void sum(torch::Tensor values_PN) override;
  std::vector<torch::Tensor> gather(const std::vector<torch::Tensor>& pieces) override;
  void scatter(const std::vector<torch::Tensor>& wholes,
               const std::vector<torch::Tensor>& pieces) override;

 private:
  struct Matrix {
    std::string name;
    std::string parameter;  ///< parameter the matrix belongs to
    std::vector<int64_t> sizes;
    int64_t begin;  ///< first element in the bucket
    int64_t place;  ///< place of its parameter in the order of registration
  };
  struct CutMatrix {
    int64_t owner = 0;
    std::vector<int64_t> lengths;  ///< lengths of the pieces of ranks owner, owner + 1, ...
    size_t piece = 0;              ///< this rank's, if it has one
  };
  /// The cut matrices of buckets reduced over `replicas`; equal on all its ranks.
  struct Cuts {
    Communicator* replicas;
    std::vector<CutMatrix> matrices;
  };
  /// Elements of a cut matrix, from `begin` on, that move between this rank and `peer`.
  struct Transfer {
    size_t matrix;
    int64_t begin, length, peer;
  };
  /// The bucket and the slot that hold a parameter.
  struct Located {
    const GradientSync::Bucket& bucket;
    const GradientSync::Slot& slot;
    /// The slot's elements in a rank's shard; `begin` is in the bucket.
    struct Part {
      int64_t begin, length;
    };
    Part part_of(int64_t rank) const;
  };

  void add_slot(const GradientSync::Bucket& bucket, const GradientSync::Slot& slot);
  void add_matrix(const GradientSync::Bucket& bucket, const Matrix& matrix);
  Cuts& cuts_of(Communicator* replicas);
  Located locate(const std::string& parameter) const;
  /// This rank's pieces of cut matrices; peers are the owners.
  static std::vector<Transfer> own_pieces(const Cuts& cuts);
  /// All pieces of the matrices this rank owns; peers are their ranks.
  static std::vector<Transfer> owned_pieces(const Cuts& cuts);
  /// A flat view of a transfer's elements.
  using ElementsOf = std::function<torch::Tensor(const Transfer&)>;
  /// Sends the elements of `out` and receives those of `in`. Collective.
  void move_elements(const Cuts& cuts, const std::vector<Transfer>& out, const ElementsOf& source,
                     const std::vector<Transfer>& in, const ElementsOf& target) const;

  std::vector<torch::Tensor> flats_;  ///< weights, one a bucket
  std::vector<const GradientSync::Bucket*> buckets_;
  GradientShare share_;
  std::vector<Cuts> cuts_;
};

}  // namespace shoal
