#include "parallel/gradients/gradient_sync.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <unordered_set>
#include <utility>

namespace shoal {
namespace {

// Elements between the starts of two gradients in a bucket are a multiple of this: 64 bytes of
// float32, so that vector loads do not straddle cache lines.
constexpr int64_t kAlignment = 16;

int64_t padded(int64_t numel) { return (numel + kAlignment - 1) / kAlignment * kAlignment; }

void check_groups(const std::vector<ParameterGroup>& groups) {
  std::unordered_set<const void*> seen;
  for (const ParameterGroup& group : groups) {
    TORCH_CHECK(group.replicas != nullptr, "a parameter group has no replicas");
    TORCH_CHECK(group.places.size() == group.parameters.size(), "a parameter group has ",
                group.parameters.size(), " parameters and ", group.places.size(), " places");
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

/// Reports that a backward pass has added to a parameter's gradient.
class GradientSync::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(GradientSync& sync, size_t bucket, size_t slot)
      : sync_(sync), bucket_(bucket), slot_(slot) {}
  void operator()(const torch::Tensor& /*parameter*/) override { sync_.on_ready(bucket_, slot_); }

 private:
  GradientSync& sync_;
  size_t bucket_, slot_;
};

GradientSync::GradientSync(std::vector<ParameterGroup> groups, Communicator& world,
                           int64_t bucket_bytes, bool shards)
    : shards_(shards), groups_(std::move(groups)) {
  TORCH_CHECK(bucket_bytes > 0, "buckets of ", bucket_bytes, " bytes hold nothing");
  check_groups(groups_);
  for (const ParameterGroup& group : groups_) {
    replicas_.push_back(group.replicas->split(0, group.replicas->rank(), Traffic::kGradients));
    add_buckets(group, world, bucket_bytes);
  }
  // A bucket is filled once the parameter that was registered first has its gradient.
  const auto first_place = [](const Bucket& bucket) { return bucket.slots.back().place; };
  std::ranges::stable_sort(buckets_, std::greater{}, first_place);
  set_hooks();
}

GradientSync::~GradientSync() {
  for (const Bucket& bucket : buckets_) {
    for (const Slot& slot : bucket.slots) {
      torch::autograd::impl::set_post_acc_grad_hooks(slot.parameter.tensor, nullptr);
    }
  }
}

void GradientSync::set_hooks() {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    for (size_t s = 0; s < buckets_[b].slots.size(); ++s) {
      torch::autograd::impl::set_post_acc_grad_hooks(buckets_[b].slots[s].parameter.tensor,
                                                     std::make_unique<Hook>(*this, b, s));
    }
  }
}

void GradientSync::add_buckets(const ParameterGroup& group, Communicator& world,
                               int64_t bucket_bytes) {
  const std::vector<int64_t> bytes = agreed_bytes(group, world);
  std::vector<Slot> slots;
  int64_t filled = 0;
  for (size_t i = group.parameters.size(); i-- > 0;) {
    const Parameter& parameter = group.parameters[i];
    const bool other_dtype = !slots.empty() && slots.back().parameter.tensor.scalar_type() !=
                                                   parameter.tensor.scalar_type();
    if (!slots.empty() && (other_dtype || filled + bytes[i] > bucket_bytes)) {
      add_bucket(std::exchange(slots, {}));
      filled = 0;
    }
    slots.push_back({parameter, group.places[i], 0, {}, false});
    filled += bytes[i];
  }
  if (!slots.empty()) add_bucket(std::move(slots));
}

void GradientSync::add_bucket(std::vector<Slot> slots) {
  Communicator* replicas = replicas_.back().get();
  Bucket bucket;
  bucket.replicas = replicas;
  int64_t length = 0;
  for (Slot& slot : slots) {
    slot.begin = length;
    length += padded(slot.parameter.tensor.numel());
  }
  const int64_t share = padded((length + replicas->size() - 1) / replicas->size());
  if (shards_) length = share * replicas->size();
  bucket.flat = at::zeros({length}, slots[0].parameter.tensor.options().requires_grad(false));
  if (shards_) {
    bucket.shard = replicas->size() == 1 ? bucket.flat : at::zeros({share}, bucket.flat.options());
  }
  for (Slot& slot : slots) {
    const torch::Tensor& tensor = slot.parameter.tensor;
    slot.gradient = bucket.flat.narrow(0, slot.begin, tensor.numel()).view(tensor.sizes());
  }
  bucket.slots = std::move(slots);
  buckets_.push_back(std::move(bucket));
}

void GradientSync::zero_grad() {
  next_ = 0;
  starts_early_ = false;
  for (Bucket& bucket : buckets_) {
    bucket.sum = Pending();
    bucket.flat.zero_();
    bucket.num_ready = 0;
    for (Slot& slot : bucket.slots) {
      slot.parameter.tensor.mutable_grad() = slot.gradient;
      slot.is_ready = false;
    }
  }
}

void GradientSync::on_ready(size_t bucket_index, size_t slot_index) {
  if (!starts_early_) return;
  Bucket& filled = buckets_[bucket_index];
  Slot& slot = filled.slots[slot_index];
  TORCH_CHECK(!slot.is_ready, "the gradient of ", slot.parameter.name,
              " was added to twice in one backward pass, after its sum over ranks may have begun");
  slot.is_ready = true;
  ++filled.num_ready;
  while (next_ < buckets_.size() && buckets_[next_].num_ready == buckets_[next_].slots.size()) {
    start(buckets_[next_++]);
  }
}

void GradientSync::start(Bucket& bucket) {
  for (Slot& slot : bucket.slots) attach(slot);
  if (bucket.replicas->size() == 1) return;
  if (!shards_) {
    bucket.sum = bucket.replicas->start_all_reduce(bucket.flat, ReduceOp::kSum);
    return;
  }
  const RowCounts shares(static_cast<size_t>(bucket.replicas->size()), bucket.shard.numel());
  bucket.sum = bucket.replicas->start_reduce_scatter(bucket.flat, bucket.shard, shares);
}

void GradientSync::attach(Slot& slot) {
  const torch::Tensor& current = slot.parameter.tensor.grad();
  if (current.defined() && current.is_same(slot.gradient)) return;
  torch::NoGradGuard no_grad;
  if (!current.defined()) {
    slot.gradient.zero_();
  } else if (!current.is_alias_of(slot.gradient)) {
    slot.gradient.copy_(current);
  }
  slot.parameter.tensor.mutable_grad() = slot.gradient;
}

void GradientSync::reduce() {
  starts_early_ = false;
  while (next_ < buckets_.size()) start(buckets_[next_++]);
  for (Bucket& bucket : buckets_) bucket.sum.wait();
}

std::vector<const Communicator*> GradientSync::communicators() const {
  std::vector<const Communicator*> result;
  for (const auto& replicas : replicas_) result.push_back(replicas.get());
  return result;
}

void GradientSync::scale(double factor) {
  for (Bucket& bucket : buckets_) (shards_ ? bucket.shard : bucket.flat).mul_(factor);
}

}  // namespace shoal
