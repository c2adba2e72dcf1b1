#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/gradients/parameter_group.h"

namespace shoal {

/// Sums each parameter's gradients over the ranks that hold copies of it.
///
/// The sum has no divisor: each rank's loss is its share of the step's loss. Gradients are views
/// into flat buckets, so sending copies nothing; a gradient that a rank's graph did not reach
/// counts as zero. Groups of one rank make no calls. Buckets are filled in reverse order of
/// registration, about the order in which backward passes finish. All ranks start the buckets of
/// all groups in that one order, on communicators of their own, so they can overtake other traffic
/// of the backward pass. With `shards` each rank gets only its equal share of each bucket's sum.
/// float32 and float64.
class GradientSync {
 public:
  static constexpr int64_t kBucketBytes = 25'000'000;

  /// One parameter's place in a bucket: its elements from `begin` on.
  struct Slot {
    Parameter parameter;
    int64_t place = 0;  ///< of the parameter in the order of registration, over all groups
    int64_t begin = 0;
    torch::Tensor gradient;  ///< a view into the bucket
    bool is_ready = false;
  };
  struct Bucket {
    torch::Tensor flat;
    std::vector<Slot> slots;
    Communicator* replicas = nullptr;  ///< a copy of its group's
    /// This rank's share of the sum, elements [rank * n, (rank + 1) * n) of `flat`; `flat` itself
    /// for a group of one rank, undefined without shards.
    torch::Tensor shard;
    size_t num_ready = 0;
    Pending sum;
  };

  /// Collective over `world` and every group's replicas: bucket borders are agreed, as ranks may
  /// hold unequal numbers of units. Throws TORCH_CHECK if a tensor is in the groups twice.
  GradientSync(std::vector<ParameterGroup> groups, Communicator& world,
               int64_t bucket_bytes = kBucketBytes, bool shards = false);
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;
  ~GradientSync();

  /// Attaches zeroed gradients. Call before the first micro-step of an optimizer step.
  void zero_grad();
  /// Optional, before the last micro-step's backward pass: that pass then starts each bucket as
  /// soon as it and all earlier ones are filled, so that their sums overlap with the rest of the
  /// pass. The sums are bitwise the same.
  void start_with_backward();
  /// Call after the last micro-step's backward pass. Collective over every group's replicas;
  /// afterwards each parameter's gradient (with shards, this rank's shard of each bucket) is the
  /// sum over its replicas and all micro-steps.
  void reduce();
  /// Multiplies every summed gradient, for clipping.
  void scale(double factor);

  const std::vector<ParameterGroup>& groups() const { return groups_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  int64_t num_buckets() const { return static_cast<int64_t>(buckets_.size()); }
  /// Number of this step's buckets whose sums are in flight or done.
  int64_t num_started() const { return static_cast<int64_t>(next_); }
  /// Number of all-reduces and reduce-scatters since construction.
  int64_t num_calls() const;
  /// The communicators that sum gradients, one a group.
  std::vector<const Communicator*> communicators() const;

 private:
  class Hook;

  void add_buckets(const ParameterGroup& group, Communicator& world, int64_t bucket_bytes);
  void add_bucket(std::vector<Slot> slots);
  /// Makes the parameter's gradient the view again if it was replaced, keeping the values.
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
  bool starts_early_ = false;  ///< whether the backward pass starts buckets
};

}  // namespace shoal
