#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/module/state.h"

namespace shoal::testing {

/// A small training state as one rank of `expert_ranks` × replicas holds it: dense tensors of
/// several dtypes, a transposed and an empty one, stacked experts with a moment, small values.
class ToyState : public Stateful {
 public:
  static constexpr int64_t kNumExperts = 6;

  /// Contents depend on `seed` and global unit ids alone; 0 gives zeros everywhere.
  ToyState(int64_t rank, int64_t expert_ranks, int64_t seed) {
    const int64_t shard = rank % expert_ranks;
    for (int64_t unit = shard * kNumExperts / expert_ranks;
         unit < (shard + 1) * kNumExperts / expert_ranks; ++unit) {
      unit_ids.push_back(unit);
    }
    weight = fill({7, 3}, torch::kDouble, seed, 1);
    transposed = fill({5, 2}, torch::kFloat, seed, 2).t();
    bias = fill({5}, torch::kBFloat16, seed, 3);
    mask = fill({2, 3}, torch::kLong, seed, 4).remainder(2).to(torch::kBool);
    count = fill({}, torch::kLong, seed, 5);
    empty = fill({0, 4}, torch::kFloat, seed, 6);
    experts = stack(seed, 10);
    moments = stack(seed, 1000);
    steps = seed * 3;
    loss = static_cast<double>(seed) / 3;
    note = seed == 0 ? "" : "seed " + std::to_string(seed);
  }

  void visit_state(StateVisitor& visitor) override {
    visit_tensor(visitor, {"weight", weight});
    visit_tensor(visitor, {"transposed", transposed});
    visit_tensor(visitor, {"bias", bias});
    visit_tensor(visitor, {"mask", mask});
    visit_tensor(visitor, {"count", count});
    visit_tensor(visitor, {"empty", empty});
    visit_tensor(visitor, {"block.experts.*.fc1.weight", experts, true, unit_ids});
    visit_tensor(visitor, {"optimizer.block.experts.*.fc1.weight.m", moments, true, unit_ids});
    if (left_out != "steps") visitor.integer("steps", steps);
    if (left_out != "loss") visitor.real("loss", loss);
    if (left_out != "note") visitor.text("note", note);
  }

  static std::vector<std::string> item_names() {
    return {"weight",
            "transposed",
            "bias",
            "mask",
            "count",
            "empty",
            "block.experts.*.fc1.weight",
            "optimizer.block.experts.*.fc1.weight.m",
            "steps",
            "loss",
            "note"};
  }

  bool equals(const ToyState& other) const {
    return weight.equal(other.weight) && transposed.equal(other.transposed) &&
           bias.equal(other.bias) && mask.equal(other.mask) && count.equal(other.count) &&
           experts.equal(other.experts) && moments.equal(other.moments) && steps == other.steps &&
           loss == other.loss && note == other.note;
  }

  std::vector<int64_t> unit_ids;
  torch::Tensor weight, transposed, bias, mask, count, empty, experts, moments;
  int64_t steps = 0;
  double loss = 0.0;
  std::string note;
  std::string left_out;  ///< an item that is not listed

 private:
  void visit_tensor(StateVisitor& visitor, const StateTensor& item) const {
    if (item.name != left_out) visitor.tensor(item);
  }
  static torch::Tensor fill(at::IntArrayRef sizes, torch::ScalarType dtype, int64_t seed,
                            int64_t tensor) {
    const torch::Tensor zeros = torch::zeros(sizes, torch::TensorOptions().dtype(dtype));
    if (seed == 0) return zeros;
    const torch::Tensor rising = torch::arange(zeros.numel(), torch::kLong).view(sizes);
    return (rising * (seed + tensor) + tensor).to(dtype);
  }
  torch::Tensor stack(int64_t seed, int64_t tensor) const {
    std::vector<torch::Tensor> units{torch::zeros({0, 2, 3})};
    for (const int64_t unit : unit_ids) {
      units.push_back(fill({1, 2, 3}, torch::kFloat, seed, tensor + unit));
    }
    return torch::cat(units);
  }
};

}  // namespace shoal::testing
