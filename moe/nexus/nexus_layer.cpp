#include "moe/nexus/nexus_layer.h"

#include <fmt/format.h>

#include <cmath>

#include "moe/exchange/slot_exchange.h"
#include "moe/kernels/row_top_k.h"
#include "moe/layer_problems.h"
#include "moe/nexus/memory_bank.h"
#include "moe/routing/routing.h"
#include "runtime/base/error.h"
#include "runtime/device/real_types.h"
#include "runtime/options/automatic_width.h"

// B images  N tokens of an image  T = B N tokens, less padding  D width  U units
// u units of this rank  s slots of a unit  P = U s slots
namespace shoal {
namespace {

/// The scale that a slot needs.
MlpInits expert_inits(const NexusOptions& options, int64_t width) {
  const auto deviation = [&](double gain, int64_t fan_in) {
    const bool is_paper = options.variant == NexusVariant::kPaper;
    return Init::normal(is_paper ? 1.0 : std::sqrt(gain / static_cast<double>(fan_in)));
  };
  return {deviation(2, width), deviation(1, options.experts.hidden_at(width)), Init::zeros()};
}

MemoryBank::Options memory_options(const NexusOptions& options) {
  const auto& [count, keys, k] = options.memory;
  return {count, keys, k, options.variant};
}

/// Multiply-adds of a slot in each unit.
std::vector<double> unit_costs(const NexusOptions& options, int64_t width) {
  const int64_t hidden = options.experts.hidden_at(width);
  std::vector<double> cost_U(static_cast<size_t>(options.experts.count),
                             2.0 * static_cast<double>(width) * static_cast<double>(hidden));
  cost_U.insert(cost_U.end(), static_cast<size_t>(options.memory.count),
                MemoryBank::cost(memory_options(options), width));
  return cost_U;
}

/// Where the units [first, first + count) of a placement are, numbered from 0.
UnitPlacement part_of(const UnitPlacement& whole, int64_t first, int64_t count) {
  const auto begin = whole.rank_of_unit().begin() + first;
  return UnitPlacement({begin, begin + count}, whole.num_ranks());
}

/// Places by cost instead of by load: a unit's work does not depend on its tokens' weights.
BuildContext without_loads(BuildContext context) {
  if (context.placement == PlacementRule::kByLoad) context.placement = PlacementRule::kByCost;
  return context;
}

int64_t units_on(const UnitBank& bank, int64_t rank) {
  return static_cast<int64_t>(bank.placement().units_of_rank(rank).size());
}

}  // namespace

void NexusOptions::validate(Problems& problems) const {
  if (experts.count + memory.count == 0) {
    problems.add("experts.count", "a Nexus layer needs an expert or a memory unit");
  }
  if (experts.count + memory.count > static_cast<int64_t>(kMostUnits)) {
    problems.add("memory.count",
                 fmt::format("with {} experts these are {} units, a layer has at most {}",
                             experts.count, experts.count + memory.count, kMostUnits));
  }
  if (memory.k > memory.keys) {
    problems.add("memory.k",
                 fmt::format("{} keys per slot, but a unit has only {}", memory.k, memory.keys));
  }
  if (variant == NexusVariant::kPaper && router_scale.has_value()) {
    problems.add("router_scale", "the paper's variant has temperatures instead; use auto");
  }
}

NexusLayer::NexusLayer(const NexusOptions& options, int64_t width, const std::string& path,
                       const BuildContext& context)
    : MoeStage(path),
      grid_(context.grid),
      width_(width),
      num_experts_(options.experts.count),
      num_slots_(options.slots),
      placement_(placement_rule(without_loads(context), path)(unit_costs(options, width))) {
  if (context.is_causal) {
    throw ConfigError(path +
                      ": a slot sees all tokens of its sample, so a causal model cannot use a "
                      "Nexus layer; use a MoE layer with a causal router");
  }
  TORCH_CHECK(placement_.num_units() >= 1, path, ": no units");
  if (num_experts_ > 0) {
    LayerProblems problems(path);
    const auto& experts = options.experts;
    check_automatic_width("experts.hidden", experts.hidden, experts.hidden_at(width), width,
                          problems);
    problems.throw_if_any();
  }
  const torch::Dtype dtype = wide_dtype(context.tensor_options);
  router_ = register_module(
      "router",
      std::make_shared<SlotRouter>(options.variant, options.router_scale,
                                   SlotRouter::Context{width, placement_.num_units(), num_slots_,
                                                       context.tensor_options.dtype(dtype)}));
  const auto bank_context = [&](int64_t first, int64_t count) {
    const auto place = [this, first, count](const std::vector<double>& /*cost_U*/) {
      return part_of(placement_, first, count);
    };
    return UnitBank::Context{width, grid_ == nullptr ? 0 : grid_->expert->rank(), place,
                             context.tensor_options};
  };
  if (num_experts_ > 0) {
    UnitBank::Context bank = bank_context(0, num_experts_);
    bank.inits = expert_inits(options, width);
    experts_ = register_module("experts", std::make_shared<ExpertBank>(options.experts, bank));
  }
  if (options.memory.count > 0) {
    memory_ = register_module(
        "memory", std::make_shared<MemoryBank>(memory_options(options),
                                               bank_context(num_experts_, options.memory.count)));
  }
}

MoeOutput NexusLayer::forward(const torch::Tensor& in_BND, const StepContext& step) {
  TORCH_CHECK(grid_ != nullptr, path(), ": built without ranks, cannot run");
  TORCH_CHECK(in_BND.dim() == 3 && in_BND.size(0) == step.sample_b.size(0), path(), ": x is ",
              in_BND.sizes(), ", the step has ", step.sample_b.size(0), " samples");
  const int64_t num_images = in_BND.size(0), width = in_BND.size(2);
  torch::Tensor x_BND = in_BND, is_padding_BN1;
  if (step.length_b.defined()) {
    is_padding_BN1 = token_mask(step, x_BND.size(1)).logical_not().unsqueeze(2);
    // Padding may be NaN, which a weight of 0 would not hide.
    x_BND = x_BND.masked_fill(is_padding_BN1, 0);
  }
  const auto [dispatch_BNP, combine_BNP] = router_->route(x_BND, is_padding_BN1);
  if (observer_) {
    observer_(dispatch_BNP.detach().view(
        {num_images, x_BND.size(1), placement_.num_units(), num_slots_}));
  }
  const std::vector<int64_t> images =
      grid_->expert->size() == 1 ? std::vector<int64_t>{num_images} : images_of_ranks(step, *grid_);
  const SlotExchange exchange(placement_, images, *grid_->expert);

  const torch::Tensor slots_BPD = dispatch_BNP.transpose(1, 2).to(x_BND.scalar_type()).bmm(x_BND);
  const torch::Tensor slots_uBsD =
      exchange.to_units(slots_BPD.view({num_images, placement_.num_units(), num_slots_, width}));
  const torch::Tensor done_BUsD = exchange.to_images(run_units(slots_uBsD));

  MoeOutput output;
  output.y_BRD = combine_BNP.to(x_BND.scalar_type()).bmm(done_BUsD.flatten(1, 2));
  output.stats = stats(combine_BNP.detach(), step);
  return output;
}

torch::Tensor NexusLayer::run_units(const torch::Tensor& slots_uBsD) const {
  const int64_t rank = grid_->expert->rank();
  const int64_t rows_per_unit = slots_uBsD.size(1) * num_slots_;
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

MoeStats NexusLayer::stats(const torch::Tensor& combine_BNP, const StepContext& step) const {
  const torch::NoGradGuard no_grad;
  const TokenContext tokens = make_token_context(step, 0, combine_BNP.size(1));
  const torch::Tensor weight_TU = tokens.take_tokens(combine_BNP.flatten(0, 1))
                                      .reshape({-1, placement_.num_units(), num_slots_})
                                      .sum(2);
  StatSums sums;
  sums.load_U = sums.score_U = weight_TU.sum(0, false, torch::kFloat64);
  sums.tokens = sums.choices = tokens.num_tokens();
  sums.entropy = entropy_sum(weight_TU);
  MoeStats result = make_stats(path(), placement_, sums);
  result.load_is_work = false;
  result.num_memory_units = placement_.num_units() - num_experts_;
  if (!step.training) result.first_unit_T = top_k(weight_TU, 1).flatten();
  return result;
}

MoeStageInfo NexusLayer::info() const {
  return {.name = path(),
          .num_units = placement_.num_units(),
          .units_per_token = placement_.num_units(),
          .num_memory_units = placement_.num_units() - num_experts_};
}

void NexusLayer::list_products(double rows, ProductList& list) const {
  const auto width = static_cast<double>(width_);
  double slots = 0;
  list.visit(*router_, rows);
  for (const auto& bank : {experts_, memory_}) {
    if (bank == nullptr) continue;
    const auto of_bank = static_cast<double>(bank->placement().num_units() * num_slots_);
    list.route(path(), of_bank * width, [&] { list.visit(*bank, of_bank); });
    slots += of_bank;
  }
  list.between(2 * rows * slots * width);  // tokens are mixed into slots, and slots into tokens
}

}  // namespace shoal
