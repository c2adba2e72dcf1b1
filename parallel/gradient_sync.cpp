#include "parallel/gradient_sync.h"

#include <unordered_set>
#include <utility>

namespace shoal {
namespace {

// Elements between the starts of two gradients in a bucket are a multiple of this: 64 bytes of
// float32, so that vector loads do not straddle cache lines.
constexpr int64_t kAlignment = 16;

int64_t padded(int64_t numel) { return (numel + kAlignment - 1) / kAlignment * kAlignment; }

void check_distinct(const std::vector<ParameterGroup>& groups) {
  std::unordered_set<const void*> seen;
  for (const ParameterGroup& group : groups) {
    TORCH_CHECK(group.replicas != nullptr, "a parameter group has no replicas");
    for (const Parameter& parameter : group.parameters) {
      TORCH_CHECK(seen.insert(parameter.tensor.unsafeGetTensorImpl()).second, "parameter ",
                  parameter.name, " is in the groups twice");
    }
  }
}

/// Each parameter's bytes on the rank where it is largest: stacks are of unequal length, and
/// bucket borders must not depend on the rank.
std::vector<int64_t> agreed_bytes(const ParameterGroup& group, Communicator& world) {
  const torch::Tensor bytes =
      torch::empty({static_cast<int64_t>(group.parameters.size())}, torch::kLong);
  auto* own = bytes.data_ptr<int64_t>();
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    own[i] = static_cast<int64_t>(group.parameters[i].tensor.nbytes());
  }
  if (world.size() > 1) all_reduce(world, bytes, ReduceOp::kMax);
  return {own, own + bytes.numel()};
}

}  // namespace

GradientSync::GradientSync(std::vector<ParameterGroup> groups, Communicator& world,
                           int64_t bucket_bytes)
    : groups_(std::move(groups)) {
  TORCH_CHECK(bucket_bytes > 0, "buckets of ", bucket_bytes, " bytes hold nothing");
  check_distinct(groups_);
  for (const ParameterGroup& group : groups_) add_buckets(group, world, bucket_bytes);
}

void GradientSync::add_buckets(const ParameterGroup& group, Communicator& world,
                               int64_t bucket_bytes) {
  const std::vector<int64_t> bytes = agreed_bytes(group, world);
  std::vector<torch::Tensor> members;
  int64_t filled = 0;
  for (size_t i = group.parameters.size(); i-- > 0;) {
    const torch::Tensor& parameter = group.parameters[i].tensor;
    const bool other_dtype =
        !members.empty() && members.back().scalar_type() != parameter.scalar_type();
    if (!members.empty() && (other_dtype || filled + bytes[i] > bucket_bytes)) {
      add_bucket(std::exchange(members, {}), group.replicas);
      filled = 0;
    }
    members.push_back(parameter);
    filled += bytes[i];
  }
  if (!members.empty()) add_bucket(members, group.replicas);
}

void GradientSync::add_bucket(const std::vector<torch::Tensor>& parameters,
                              Communicator* replicas) {
  int64_t length = 0;
  for (const torch::Tensor& parameter : parameters) length += padded(parameter.numel());
  Bucket bucket{at::zeros({length}, parameters[0].options().requires_grad(false)), {}, replicas};
  int64_t offset = 0;
  for (const torch::Tensor& parameter : parameters) {
    const torch::Tensor gradient =
        bucket.flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
    bucket.slots.push_back({parameter, gradient});
    offset += padded(parameter.numel());
  }
  buckets_.push_back(std::move(bucket));
}

void GradientSync::zero_grad() {
  for (Bucket& bucket : buckets_) {
    bucket.flat.zero_();
    for (Slot& slot : bucket.slots) slot.parameter.mutable_grad() = slot.gradient;
  }
}

void GradientSync::attach(Slot& slot) {
  const torch::Tensor& current = slot.parameter.grad();
  if (current.defined() && current.is_same(slot.gradient)) return;
  torch::NoGradGuard no_grad;
  if (!current.defined()) {
    slot.gradient.zero_();
  } else if (!current.is_alias_of(slot.gradient)) {
    slot.gradient.copy_(current);
  }
  slot.parameter.mutable_grad() = slot.gradient;
}

void GradientSync::reduce() {
  std::vector<Pending> pending;
  for (Bucket& bucket : buckets_) {
    for (Slot& slot : bucket.slots) attach(slot);
    if (bucket.replicas->size() == 1) continue;
    pending.push_back(bucket.replicas->start_all_reduce(bucket.flat, ReduceOp::kSum));
  }
  for (Pending& bucket : pending) bucket.wait();
}

void GradientSync::scale(double factor) {
  for (Bucket& bucket : buckets_) bucket.flat.mul_(factor);
}

}  // namespace shoal
