#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/gradients/parameter_group.h"

namespace shoal {

/// Sums each parameter's gradients over the ranks that hold copies, in buckets, like DDP.
///
/// Sums are not divided: each rank's loss is its share of the step's loss. Gradients are views into
/// the flat buckets, so nothing is copied to send them. A gradient that this rank's graph did not
/// reach counts as zero. Groups of one rank communicate nothing. float32 and float64.
///
/// Buckets hold the parameters in reverse order of registration, roughly the order in which a
/// backward pass completes their gradients. All ranks start all buckets in this order, and at equal
/// places among the other collectives of the backward pass. For this, every rank's graph reaches
/// the same parameters between the same two collectives, also those of a layer of which it has no
/// units (experts). The parameters of such a layer have no elements; the backward pass still
/// reaches them. StepControl ends the job where a rank's graph lacks a parameter.
///
/// Sums run on communicators of their own (Traffic::kGradients). With MPI and with threads they can
/// overtake other traffic. With NCCL a sum starts behind the exchange of rows that is queued when
/// its bucket is complete, and runs beside later exchanges, which the GPU schedules first.
class GradientSync {
 public:
  static constexpr int64_t kBucketBytes = 25'000'000;

  /// One parameter's part of a bucket.
  struct Slot {
    Parameter parameter;
    int64_t place = 0;       ///< index of the parameter in the list of all parameters
    int64_t begin = 0;       ///< first element in the bucket
    torch::Tensor gradient;  ///< a view into the bucket
    bool is_ready = false;   ///< with start_with_backward(): true once the gradient is complete
  };
  struct Bucket {
    torch::Tensor flat;  ///< 1-D: the gradients of all slots, with padding
    std::vector<Slot> slots;
    Communicator* replicas = nullptr;  ///< sums `flat` over its ranks; carries no other traffic
    /// With `shards`: this rank's share of the sum, elements [rank * n, (rank + 1) * n) of the
    /// bucket; `flat` itself in a group of one rank. Undefined without `shards`.
    torch::Tensor shard;
    size_t num_ready = 0;  ///< number of ready slots
    Pending sum;
  };

  /// `bucket_bytes`: most bytes of a bucket that holds several parameters. `shards`: use
  /// reduce-scatter instead of all-reduce, so that each rank gets only its equal share of each
  /// bucket's sum (for OptimizerShards, ZeRO-1). Collective over `world` and every group's
  /// replicas: ranks agree on the borders of buckets, as they may hold unequal numbers of units
  /// (experts). Throws TORCH_CHECK if a tensor is in the groups twice.
  GradientSync(std::vector<ParameterGroup> groups, Communicator& world,
               int64_t bucket_bytes = kBucketBytes, bool shards = false);
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;
  ~GradientSync();

  /// Zeroes the gradients and attaches them to the parameters. Call before the first micro-step (a
  /// forward and backward pass that accumulates gradients) of an optimizer step.
  void zero_grad();
  /// Optional; call before the last micro-step's backward pass. That pass then starts the sum of
  /// each bucket as soon as the bucket and all earlier ones are complete, so that communication
  /// overlaps with the rest of the pass. The sums are the same, bit for bit.
  void start_with_backward() { starts_early_ = true; }
  /// Starts the remaining sums and waits for all. Call after the last micro-step's backward pass.
  /// Afterwards each parameter's gradient (with `shards`: this rank's shard of each bucket) is the
  /// sum over its replicas and all micro-steps. Collective over every group's replicas.
  void reduce();
  /// Multiplies every summed gradient by `factor`, for clipping.
  void scale(double factor);

  const std::vector<ParameterGroup>& groups() const { return groups_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// Returns the number of this step's buckets whose sums are in flight or done.
  int64_t num_started() const { return static_cast<int64_t>(next_); }
  /// Returns the communicators that sum gradients, one per group.
  std::vector<const Communicator*> communicators() const;

 private:
  class Hook;

  void add_buckets(const ParameterGroup& group, Communicator& world, int64_t bucket_bytes);
  void add_bucket(std::vector<Slot> slots);
  /// Makes the gradient the bucket's view again if autograd replaced it, keeping its values.
  static void attach(Slot& slot);
  void set_hooks();
  /// Called when the backward pass has added to a gradient.
  void on_ready(size_t bucket, size_t slot);
  void start(Bucket& bucket);

  bool shards_;
  std::vector<ParameterGroup> groups_;
  std::vector<std::unique_ptr<Communicator>> replicas_;  ///< a copy of each group's replicas
  std::vector<Bucket> buckets_;
  size_t next_ = 0;            ///< the first bucket that is not started
  bool starts_early_ = false;  ///< true if the backward pass starts buckets
};

}  // namespace shoal
