#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/gradients/gradient_sync.h"
#include "runtime/module/parameter.h"
#include "runtime/optim/state_shards.h"

namespace shoal {

/// Shares the optimizer's work and state out among the replicas of each parameter: rank r of n
/// updates the r-th n-th of each bucket, and all ranks gather the weights afterwards.
///
/// Weights move into flat buffers laid out as the buckets of gradients; parameters become views of
/// them. A shard may begin and end inside a matrix.
/// Source: Rajbhandari et al. 2020 (ZeRO), stage 1.
class OptimizerShards : public StateShards {
 public:
  /// `sync` has shards and outlives this object.
  explicit OptimizerShards(GradientSync& sync);

  /// This rank's, each of one matrix; their gradients are the sums over replicas once `sync` has
  /// reduced.
  const std::vector<Parameter>& pieces() const { return pieces_; }
  /// Place of each piece's parameter among all, in the order of the groups of `sync`.
  const std::vector<int64_t>& indices() const { return indices_; }
  /// Collective. After the pieces were updated.
  void gather_weights();

  torch::Device device() const override { return flats_.front().device(); }
  void sum(torch::Tensor values_PN) override;
  std::vector<torch::Tensor> gather(const std::vector<torch::Tensor>& pieces) override;
  void scatter(const std::vector<torch::Tensor>& wholes,
               const std::vector<torch::Tensor>& pieces) override;

 private:
  /// A matrix of which several ranks have pieces.
  struct CutMatrix {
    int64_t first_rank = 0;
    std::vector<int64_t> lengths;  ///< elements of first_rank, of the rank behind it, ...
    size_t piece = 0;              ///< this rank's, if it has one
  };
  /// The cut matrices of the buckets that are reduced over `replicas`, equal on all its ranks.
  struct Cuts {
    Communicator* replicas;
    std::vector<CutMatrix> matrices;
  };
  /// Elements that travel between this rank and `peer`: some of a cut matrix, from `begin` on.
  struct Leg {
    size_t matrix;
    int64_t begin, length, peer;
  };

  struct Matrix {
    std::string name;
    std::string parameter;  ///< that it belongs to
    std::vector<int64_t> sizes;
    int64_t begin;  ///< in the bucket
    int64_t index;  ///< of its parameter
  };
  void add_slot(const GradientSync::Bucket& bucket, const GradientSync::Slot& slot, int64_t index);
  void add_matrix(const GradientSync::Bucket& bucket, const Matrix& matrix);
  Cuts& cuts_of(Communicator* replicas);
  /// This rank's pieces, by the rank that has the matrix's first element.
  static std::vector<Leg> own_legs(const Cuts& cuts);
  /// All pieces of matrices that begin here, by the rank that has them.
  static std::vector<Leg> legs_of_others(const Cuts& cuts);
  /// A flat view of a leg's elements.
  using ElementsOf = std::function<torch::Tensor(const Leg&)>;
  /// Sends those of `out` and takes in those of `in`. Collective.
  void move_elements(const Cuts& cuts, const std::vector<Leg>& out, const ElementsOf& source,
                     const std::vector<Leg>& in, const ElementsOf& target) const;

  std::vector<torch::Tensor> flats_;  ///< weights, one a bucket
  std::vector<const GradientSync::Bucket*> buckets_;
  std::vector<Parameter> pieces_;
  std::vector<int64_t> indices_;
  std::vector<Cuts> cuts_;
};

}  // namespace shoal
