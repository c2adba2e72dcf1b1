#include "moe/nexus_layer.h"

#include <fmt/format.h>

#include <cmath>

#include "moe/expert_mlp.h"
#include "moe/slot_exchange.h"
#include "moe/top_k.h"
#include "runtime/error.h"

// B images  N tokens of an image  D width  U units  u units of this rank  s slots of a unit
// P = U s slots
namespace shoal {
namespace {

/// Two-layer MLPs that start at the scale a slot needs.
class SlotExperts : public UnitBank {
 public:
  SlotExperts(const NexusOptions& options, const Context& context)
      : activation_(options.experts.activation),
        placement_(
            context.place(std::vector<double>(static_cast<size_t>(options.experts.count), 0.0))) {
    const int64_t width = context.width, hidden = options.experts.hidden.value_or(4 * width);
    const bool is_paper = options.variant == NexusVariant::kPaper;
    const auto deviation = [&](double gain, int64_t fan_in) {
      return Init::normal(is_paper ? 1.0 : std::sqrt(gain / static_cast<double>(fan_in)));
    };
    const auto add = [&](const char* name, at::IntArrayRef sizes, const Init& init) {
      return add_stacked_parameter(name, sizes, context.tensor_options, init,
                                   placement_.units_of_rank(context.rank));
    };
    weights_.fc1_weight = add("fc1.weight", {width, hidden}, deviation(2, width));
    if (options.experts.bias) weights_.fc1_bias = add("fc1.bias", {hidden}, Init::zeros());
    weights_.fc2_weight = add("fc2.weight", {hidden, width}, deviation(1, hidden));
    if (options.experts.bias) weights_.fc2_bias = add("fc2.bias", {width}, Init::zeros());
  }
  torch::Tensor forward(const torch::Tensor& rows_RD, const std::vector<int64_t>& rows_u) override {
    return expert_mlp(rows_RD, rows_u, weights_, activation_);
  }
  const UnitPlacement& placement() const override { return placement_; }

 private:
  Activation activation_;
  UnitPlacement placement_;
  ExpertWeights weights_;
};

MemoryBank::Options memory_options(const NexusOptions& options) {
  const auto& [count, keys, k] = options.memory;
  return {count, keys, k, options.variant};
}

/// Multiply-adds of a slot in each unit.
std::vector<double> costs(const NexusOptions& options, int64_t width) {
  const int64_t hidden = options.experts.hidden.value_or(4 * width);
  std::vector<double> cost_U(static_cast<size_t>(options.experts.count),
                             2.0 * static_cast<double>(width) * static_cast<double>(hidden));
  cost_U.insert(cost_U.end(), static_cast<size_t>(options.memory.count),
                MemoryBank::cost(memory_options(options), width));
  return cost_U;
}

/// Where the units [first, first + count) of a placement are, numbered from 0.
UnitPlacement part_of(const UnitPlacement& whole, int64_t first, int64_t count) {
  std::vector<int64_t> rank_of_unit(static_cast<size_t>(count));
  for (int64_t rank = 0; rank < whole.num_ranks(); ++rank) {
    for (const int64_t unit : whole.units_of_rank(rank)) {
      if (unit >= first && unit < first + count) {
        rank_of_unit[static_cast<size_t>(unit - first)] = rank;
      }
    }
  }
  return UnitPlacement(rank_of_unit, whole.num_ranks());
}

/// What a unit works on does not depend on the weight that tokens give it: by load is by cost.
BuildContext by_cost_for_load(const BuildContext& context) {
  BuildContext result = context;
  if (result.placement == PlacementRule::kByLoad) result.placement = PlacementRule::kByCost;
  return result;
}

int64_t units_on(const UnitBank& bank, int64_t rank) {
  return static_cast<int64_t>(bank.placement().units_of_rank(rank).size());
}

}  // namespace

void NexusOptions::validate(Problems& problems) const {
  if (experts.count + memory.count == 0) {
    problems.add("experts.count", "a Nexus layer needs an expert or a memory unit");
  }
  if (memory.k > memory.keys) {
    problems.add("memory.k",
                 fmt::format("{} keys a slot, but a unit has only {}", memory.k, memory.keys));
  }
  if (variant == NexusVariant::kPaper && router_scale.has_value()) {
    problems.add("router_scale", "the paper's variant has temperatures instead; use auto");
  }
}

NexusLayer::NexusLayer(const NexusOptions& options, int64_t width, const std::string& path,
                       const BuildContext& context)
    : MoeStage(path),
      grid_(context.grid),
      num_experts_(options.experts.count),
      slots_(options.slots),
      placement_(make_placer(by_cost_for_load(context), path)(costs(options, width))) {
  if (context.is_causal) {
    throw ConfigError(path +
                      ": a slot sees all tokens of its sample, so a Nexus layer cannot be "
                      "part of a causal model");
  }
  TORCH_CHECK(placement_.num_units() >= 1, path, ": no units");
  const bool is_double =
      torch::typeMetaToScalarType(context.tensor_options.dtype()) == torch::kFloat64;
  router_ = register_module(
      "router", std::make_shared<SlotRouter>(
                    options.variant, options.router_scale,
                    SlotRouter::Context{width, placement_.num_units(), slots_,
                                        context.tensor_options.dtype(
                                            is_double ? torch::kFloat64 : torch::kFloat32)}));
  const auto bank_context = [&](int64_t first, int64_t count) {
    UnitBank::Context bank;
    bank.width = width;
    bank.rank = grid_ == nullptr ? 0 : grid_->expert->rank();
    bank.tensor_options = context.tensor_options;
    bank.place = [this, first, count](const std::vector<double>&) {
      return part_of(placement_, first, count);
    };
    return bank;
  };
  if (num_experts_ > 0) {
    experts_ = register_module(
        "experts", std::make_shared<SlotExperts>(options, bank_context(0, num_experts_)));
  }
  if (options.memory.count > 0) {
    memory_ = register_module(
        "memory", std::make_shared<MemoryBank>(memory_options(options),
                                               bank_context(num_experts_, options.memory.count)));
  }
}

MoeOutput NexusLayer::forward(const torch::Tensor& x_BND, const StepContext& step) {
  TORCH_CHECK(grid_ != nullptr, path(), ": built without ranks, cannot run");
  TORCH_CHECK(x_BND.dim() == 3 && x_BND.size(0) == step.sample_b.size(0), path(), ": x is ",
              x_BND.sizes(), ", the step has ", step.sample_b.size(0), " samples");
  const int64_t B = x_BND.size(0), U = placement_.num_units(), D = x_BND.size(2);
  const auto [dispatch_BNP, combine_BNP] = router_->route(x_BND);
  if (observer_) {
    observer_(dispatch_BNP.detach().view({B, dispatch_BNP.size(1), U, slots_}));
  }
  const std::vector<int64_t> images =
      grid_->expert->size() == 1 ? std::vector<int64_t>{B} : images_of_ranks(step, *grid_);
  const SlotExchange exchange(placement_, images, *grid_->expert);

  const torch::Tensor slots_BPD = dispatch_BNP.transpose(1, 2).to(x_BND.scalar_type()).bmm(x_BND);
  const torch::Tensor at_units = exchange.to_units(slots_BPD.view({B, U, slots_, D}));
  const torch::Tensor done_BUsD = exchange.to_images(run_units(at_units));

  MoeOutput output;
  output.y_BRD = combine_BNP.to(x_BND.scalar_type()).bmm(done_BUsD.view({B, U * slots_, D}));
  output.stats = stats(combine_BNP.detach(), step.training);
  return output;
}

torch::Tensor NexusLayer::run_units(const torch::Tensor& slots_uBsD) const {
  const int64_t rank = grid_->expert->rank();
  const int64_t rows_per_unit = slots_uBsD.size(1) * slots_;
  const torch::Tensor rows_RD =
      slots_uBsD.view({slots_uBsD.size(0) * rows_per_unit, slots_uBsD.size(3)});
  std::vector<UnitBank*> banks;
  std::vector<int64_t> rows_of_bank;
  for (UnitBank* bank : {experts_.get(), memory_.get()}) {
    if (bank == nullptr) continue;
    banks.push_back(bank);
    rows_of_bank.push_back(units_on(*bank, rank) * rows_per_unit);
  }
  std::vector<torch::Tensor> parts = rows_RD.split_with_sizes(rows_of_bank);
  for (size_t i = 0; i < banks.size(); ++i) {
    const std::vector<int64_t> rows_u(static_cast<size_t>(units_on(*banks[i], rank)),
                                      rows_per_unit);
    parts[i] = banks[i]->forward(parts[i], rows_u);
  }
  return (parts.size() == 1 ? parts[0] : torch::cat(parts)).view(slots_uBsD.sizes());
}

MoeStats NexusLayer::stats(const torch::Tensor& combine_BNP, bool training) const {
  const torch::NoGradGuard no_grad;
  const int64_t T = combine_BNP.size(0) * combine_BNP.size(1), U = placement_.num_units();
  const torch::Tensor weight_TU = combine_BNP.reshape({T, U, slots_}).sum(2);
  StatSums sums;
  sums.load_U = weight_TU.sum(0, false, torch::kFloat64);
  sums.tokens = sums.choices = sums.kept = T;
  constexpr double kTiny = 1e-38;  // 0 log 0 is 0
  sums.entropy = -weight_TU.clamp_min(kTiny).log_().mul_(weight_TU).sum(torch::kFloat64);
  MoeStats result = make_stats(path(), placement_, sums);
  if (!training) result.first_unit_T = top_k(weight_TU, 1).flatten();
  return result;
}

MoeStageInfo NexusLayer::info() const {
  return {path(), placement_.num_units(), placement_.num_units()};
}

torch::Tensor NexusLayer::dispatch_weights(const torch::Tensor& x_BND) const {
  const torch::NoGradGuard no_grad;
  const torch::Tensor dispatch_BNP = router_->route(x_BND).dispatch_BNP;
  return dispatch_BNP.view({x_BND.size(0), x_BND.size(1), placement_.num_units(), slots_});
}

}  // namespace shoal
