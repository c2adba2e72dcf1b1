#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "parallel/parameter_group.h"

namespace shoal {

/// Adds up each parameter's gradients over the ranks that hold copies of it.
///
/// A SUM and nothing else: a loss is a rank's share of the step's. Gradients are views into flat
/// buffers, so nothing is copied to send them; a gradient that a rank's graph did not reach counts
/// as zero. Groups of one rank make no calls. Buckets are filled in reverse order of registration,
/// about the order in which backward passes finish, and all ranks start them in the same order.
/// float32 and float64.
class GradientSync {
 public:
  /// Collective over `world`: bucket borders are agreed, as ranks may hold unequal numbers of
  /// units. Throws TORCH_CHECK if a tensor is in the groups twice.
  GradientSync(std::vector<ParameterGroup> groups, Communicator& world,
               int64_t bucket_bytes = 25'000'000);

  /// Before the first micro-step of an optimizer step. Attaches zeroed gradients.
  void zero_grad();
  /// After the last micro-step's backward pass. Collective over every group's replicas; afterwards
  /// each parameter's gradient is the sum over its replicas and all micro-steps.
  void reduce();
  /// Multiplies every gradient, as clipping does.
  void scale(double factor);

  const std::vector<ParameterGroup>& groups() const { return groups_; }
  int64_t num_buckets() const { return static_cast<int64_t>(buckets_.size()); }

 private:
  /// One parameter's place: `gradient` is a view into the bucket.
  struct Slot {
    torch::Tensor parameter;
    torch::Tensor gradient;
  };
  struct Bucket {
    torch::Tensor flat;
    std::vector<Slot> slots;
    Communicator* replicas = nullptr;
  };

  void add_buckets(const ParameterGroup& group, Communicator& world, int64_t bucket_bytes);
  void add_bucket(const std::vector<torch::Tensor>& parameters, Communicator* replicas);
  /// Puts back the view where something else took its place, keeping the values.
  static void attach(Slot& slot);

  std::vector<ParameterGroup> groups_;
  std::vector<Bucket> buckets_;
};

}  // namespace shoal
