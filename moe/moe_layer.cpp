#include "moe/moe_layer.h"

#include <fmt/format.h>

#include <algorithm>

#include "moe/exchange/dispatch.h"
#include "moe/exchange/slot_exchange.h"
#include "moe/kernels/count_ids.h"
#include "moe/layer_problems.h"
#include "runtime/device/real_types.h"
#include "runtime/options/automatic_values.h"
#include "runtime/options/automatic_width.h"
#include "runtime/random/random_stream.h"

// B samples  R rows per sample  T = B R tokens, less padding  D width  U units  S scope instances
namespace shoal {
namespace {

struct Parts {
  std::shared_ptr<UnitBank> bank;
  std::shared_ptr<Router> router;
  BalanceLosses losses;
};

Parts build(const MoeOptions& options, const UnitBank::Context& bank_context,
            const std::string& layer) {
  Parts parts;
  parts.bank = Registry<UnitBank>::create(options.experts, bank_context);
  const torch::TensorOptions& tensors = bank_context.tensor_options;
  const torch::Dtype dtype = wide_dtype(tensors);
  const Router::Context router_context{bank_context.width, parts.bank->placement().num_units(),
                                       tensors.dtype(dtype), layer};
  parts.router = Registry<Router>::create(options.router, router_context);
  parts.losses = BalanceLosses(options.losses ? *options.losses
                                              : usual_losses(*parts.router, /*scores_only=*/false));
  return parts;
}

/// The parts of a layer that is built on `meta`, for checks only.
Parts build_for_checks(const MoeOptions& options) {
  return build(options, {.width = 1, .tensor_options = torch::kMeta}, /*layer=*/"");
}

/// Checks rules between the sections.
void check(const Parts& parts, const MoeOptions& options, Problems& problems) {
  const Router& router = *parts.router;
  router.check("router", problems);
  parts.losses.check(router, options.router.name(), problems);
  if (router.chooses_per_unit() && options.capacity.mode != CapacityMode::kDropless) {
    problems.add("capacity.mode",
                 fmt::format("with the {} router every unit takes a fixed number of tokens, see "
                             "router.factor; leave capacity out",
                             options.router.name()));
  }
}

void check_widths(const UnitBank& bank, const SharedExpert::Options& shared, int64_t width,
                  Problems& problems) {
  // A width that is set has passed the same limit.
  const int64_t hidden = bank.mlp_form() ? bank.mlp_form()->hidden : 0;
  check_automatic_width("experts.hidden", std::nullopt, hidden, width, problems);
  if (shared.count == 0) return;
  check_automatic_width("shared.hidden", shared.hidden, shared.hidden_at(width), width, problems);
}

/// Cuts the routing into `num_chunks` parts of whole routing groups, as equal as can be.
std::vector<Routing> cut(const Routing& routing, int64_t num_chunks) {
  if (num_chunks == 1) return {routing};
  const std::vector<int64_t>& offsets = routing.group_offsets;
  const auto num_groups = static_cast<int64_t>(offsets.size()) - 1;
  std::vector<Routing> chunks;
  std::vector<int64_t> tokens;
  for (int64_t c = 0; c < num_chunks; ++c) {
    const int64_t begin = num_groups * c / num_chunks, end = num_groups * (c + 1) / num_chunks;
    const int64_t first = offsets[static_cast<size_t>(begin)];
    tokens.push_back(offsets[static_cast<size_t>(end)] - first);
    Routing& chunk = chunks.emplace_back(routing);
    chunk.count_U.reset();
    chunk.group_offsets.assign(offsets.begin() + begin, offsets.begin() + end + 1);
    for (int64_t& offset : chunk.group_offsets) offset -= first;
    for (torch::Tensor* rows : {&chunk.unit_TK, &chunk.score_TK, &chunk.priority_T}) {
      if (rows->defined()) *rows = rows->narrow(0, first, tokens.back());
    }
  }
  // One node of the graph for all chunks, whose backward pass is one concatenation.
  const auto weight = routing.weight_TK.split_with_sizes(tokens);
  for (size_t c = 0; c < chunks.size(); ++c) chunks[c].weight_TK = weight[c];
  return chunks;
}

/// Returns the tokens of each chunk.
std::vector<torch::Tensor> split_tokens(const torch::Tensor& x_TD,
                                        const std::vector<TokenAssignments>& chunks) {
  if (chunks.size() == 1) return {x_TD};
  std::vector<int64_t> tokens;
  for (const TokenAssignments& chunk : chunks) tokens.push_back(chunk.num_tokens);
  return x_TD.split_with_sizes(tokens);
}

/// Counts the tokens that have no row.
torch::Tensor count_unrouted(const TokenAssignments& assignments) {
  const int64_t num_tokens = assignments.num_tokens;
  torch::Tensor is_missing = torch::ones({num_tokens + 1}, assignments.token_A.options());
  is_missing.index_fill_(0, assignments.token_A + 1, 0);  // entry 0: padding rows
  return is_missing.narrow(0, 1, num_tokens).sum();
}

StatSums layer_sums(const Routing& routing, const std::vector<TokenAssignments>& chunks,
                    bool chooses_per_unit) {
  const torch::NoGradGuard no_grad;
  StatSums sums;
  const bool is_counted = routing.count_U.defined() && routing.unit_TK.is_same(routing.choice_TK);
  sums.load_U = (is_counted ? routing.count_U : count_ids(routing.unit_TK, routing.num_units))
                    .to(torch::kFloat64);
  sums.tokens = routing.num_tokens();
  sums.choices = routing.unit_TK.numel();
  torch::Tensor kept = chunks.front().num_kept;
  for (size_t c = 1; c < chunks.size(); ++c) kept = kept + chunks[c].num_kept;
  if (!chooses_per_unit) sums.kept = kept;  // units that choose tokens drop none
  if (!kept.is_cpu() || kept.item<int64_t>() < sums.choices) {
    sums.unrouted = count_unrouted(chunks.front());
    for (size_t c = 1; c < chunks.size(); ++c) sums.unrouted += count_unrouted(chunks[c]);
  }
  if (routing.prob_TU.defined()) {
    sums.entropy = entropy_sum(routing.prob_TU);
    sums.score_U = routing.prob_TU.sum(0, /*keepdim=*/false, torch::kFloat64);
  }
  return sums;
}

const AutomaticValues<MoeOptions> automatic_moe_options;

}  // namespace

void MoeOptions::resolve() {
  if (losses) return;
  losses = usual_losses(*build_for_checks(*this).router, /*scores_only=*/false);
}

void MoeOptions::validate(Problems& problems) const {
  if (has_unnamed(losses)) return;
  check(build_for_checks(*this), *this, problems);
}

MoeLayer::MoeLayer(const MoeOptions& options, int64_t width, const std::string& path,
                   const BuildContext& context, const std::optional<MlpInits>& inits)
    : MoeStage(path), options_(options), width_(width), grid_(context.grid) {
  const UnitBank::Context bank_context{width, grid_ == nullptr ? 0 : grid_->expert->rank(),
                                       placement_rule(context, path), context.tensor_options,
                                       inits};
  // Without ranks nothing is run and no file may be opened, which an empty path tells the router.
  Parts parts = build(options, bank_context, grid_ == nullptr ? "" : path);
  LayerProblems problems(path);
  check(parts, options, problems);
  if (parts.router->needs_token_ids() && !context.has_token_ids) {
    problems.add("router.by", "token: the model reads no tokens; use position");
  }
  if (context.is_causal) {
    check_causality(*parts.router, options.router.name(), options.capacity, problems);
  }
  check_widths(*parts.bank, options.shared, width, problems);
  problems.throw_if_any();
  router_ = register_module("router", parts.router);
  bank_ = register_module("experts", parts.bank);
  losses_ = std::move(parts.losses);
  if (options.shared.count > 0) {
    shared_ = register_module("shared", std::make_shared<SharedExpert>(
                                            options.shared, width, context.tensor_options, inits));
  }
}

MoeStageInfo MoeLayer::info() const {
  const int64_t num_units = bank_->placement().num_units();
  const bool is_balanced = !router_->needs_balance_loss() || losses_.evens_out_loads();
  return {.name = path(),
          .num_units = num_units,
          .units_per_token = router_->units_per_token(),
          .note = router_->note(),
          .unbalanced = is_balanced ? "" : options_.router.name(),
          .num_chunks = options_.exchange.chunks,
          .is_hierarchical = options_.exchange.hierarchical,
          .num_memory_units = num_memory_units()};
}

void MoeLayer::list_products(double rows, ProductList& list) const {
  const double routed = rows * router_->routed_per_token();
  list.visit(*router_, rows);
  list.route(path(), routed * static_cast<double>(width_), [&] { list.visit(*bank_, routed); });
  if (shared_) list.visit(*shared_, rows);
}

int64_t MoeLayer::num_memory_units() const {
  return bank_->are_memory_units() ? bank_->placement().num_units() : 0;
}

MoeOutput MoeLayer::forward(const torch::Tensor& x_BRD, const StepContext& step) {
  TORCH_CHECK(grid_ != nullptr, path(), ": built without ranks, cannot run");
  TORCH_CHECK(x_BRD.dim() == 3 && x_BRD.size(0) == step.sample_b.size(0), path(), ": x is ",
              x_BRD.sizes(), ", the step has ", step.sample_b.size(0), " samples");
  const TokenContext context = make_token_context(step, hash_name(path()), x_BRD.size(1));
  const torch::Tensor x_TD =
      context.take_tokens(x_BRD.reshape({x_BRD.size(0) * x_BRD.size(1), x_BRD.size(2)}));
  const Routing routing = router_->route(x_TD, context);

  Capacity capacity = options_.capacity;
  if (!step.training) capacity.mode = CapacityMode::kDropless;
  const std::vector<TokenAssignments> chunks = assign_chunks(routing, context, capacity);
  std::optional<PendingRoutes> pending;
  // Rows that stay on this rank, in their own dtype, need no exchange.
  if (grid_->expert->size() > 1 || options_.exchange.payload != Payload::kSame) {
    const PackedType type{x_TD.scalar_type(), chunks.front().weight_A.scalar_type(), x_TD.size(1)};
    pending = start_routes(chunks, bank_->placement(), *grid_, options_.exchange,
                           {type, cuts().of_units});
  }
  // Before the experts, so that a GPU has work while the host waits for counts.
  StatSums sums = layer_sums(routing, chunks, router_->chooses_per_unit());
  const bool has_losses = step.training && !losses_.names().empty();
  std::optional<BalanceLosses::Sums> losses;
  const auto evaluate_losses = [&] {
    losses = losses_.evaluate(routing, context, grid_->tensor_world());
  };
  // On CPUs the losses come after the experts: another order of the graph would change the last
  // bits of the routing's gradients.
  if (has_losses && x_TD.is_cuda()) evaluate_losses();
  const torch::Tensor y_TD =
      pending ? run_exchanged(x_TD, chunks, *std::move(pending)) : run_local(x_TD, chunks.front());
  MoeOutput output;
  output.y_BRD = context.put_back(y_TD).reshape({x_BRD.size(0), x_BRD.size(1), y_TD.size(1)});
  if (has_losses) {
    if (!losses) evaluate_losses();
    sums.losses = std::move(losses->values);
    if (step.length_b.defined()) sums.items = context.num_samples();
    output.auxiliary_loss = losses->auxiliary_loss;
  }
  output.stats = make_stats(path(), bank_->placement(), sums,
                            has_losses ? losses_.names() : std::vector<std::string>());
  output.stats.num_memory_units = num_memory_units();
  if (!step.training) output.stats.first_unit_T = router_->first_units(routing);
  return output;
}

std::vector<TokenAssignments> MoeLayer::assign_chunks(const Routing& routing,
                                                      const TokenContext& context,
                                                      const Capacity& capacity) const {
  const int64_t num_chunks = cuts().of_tokens;
  std::vector<TokenAssignments> chunks;
  for (const Routing& chunk : cut(routing, num_chunks))
    chunks.push_back(apply_capacity(chunk, capacity));
  const int64_t group = context.step.samples_per_group;
  const bool is_known = capacity.mode == CapacityMode::kPadded &&
                        context.step.samples_in_micro % group == 0 &&
                        routing.unit_TK.is_same(routing.choice_TK) &&  // no masked tokens
                        !context.step.length_b.defined();
  if (!is_known || grid_->expert->size() == 1) return chunks;
  const int64_t rows = unit_capacity(group * context.rows_per_sample * routing.choices_per_token(),
                                     routing.num_units, capacity);
  for (const int64_t samples : images_of_ranks(context.step, *grid_)) {
    const int64_t groups = samples / group;
    for (int64_t c = 0; c < num_chunks; ++c) {
      chunks[static_cast<size_t>(c)].rows_per_unit_E.push_back(
          (groups * (c + 1) / num_chunks - groups * c / num_chunks) * rows);
    }
  }
  return chunks;
}

// On one rank there is no exchange to overlap with.
MoeLayer::Cuts MoeLayer::cuts() const {
  const ExchangeOptions& exchange = options_.exchange;
  if (grid_->expert->size() == 1) return {1, 1};
  const bool has_levels = exchange.hierarchical && grid_->num_nodes() > 1;
  const bool by_unit = cuts_by_unit(exchange.chunks, has_levels, bank_->placement().fewest_units());
  return by_unit ? Cuts{1, exchange.chunks} : Cuts{exchange.chunks, 1};
}

torch::Tensor MoeLayer::run_local(const torch::Tensor& x_TD, const TokenAssignments& assignments) {
  const torch::Tensor shared_TD = shared_ ? shared_->forward(x_TD) : torch::Tensor();
  const DispatchPlan plan = plan_on_one_rank(assignments);
  const torch::Tensor y_TD =
      bank_->forward_local(x_TD, {plan.index, assignments.weight_A, plan.rows_u});
  return shared_ ? y_TD + shared_TD : y_TD;
}

// At most one dispatch and one combine are in flight: several would share the network, and all
// would arrive late. The backward pass runs these steps from last to first.
torch::Tensor MoeLayer::run_exchanged(const torch::Tensor& x_TD,
                                      const std::vector<TokenAssignments>& chunks,
                                      PendingRoutes pending) {
  const std::vector<torch::Tensor> x_C = split_tokens(x_TD, chunks);
  const auto start = [&](size_t c, const RowRoute::Level& first) {
    const size_t chunk = std::min(c, chunks.size() - 1);  // parts of units are of one chunk
    return start_dispatch(x_C[chunk], chunks[chunk].weight_A, first);
  };
  DispatchInFlight next = start(0, pending.first(0));
  const torch::Tensor shared_TD = shared_ ? shared_->forward(x_TD) : torch::Tensor();
  const std::vector<RowRoute> routes = std::move(pending).wait();

  const int64_t num_parts = cuts().of_units;
  std::vector<UnitBank::ForwardWeighted> parts;
  if (num_parts > 1) parts = bank_->split(num_parts);
  CombineInFlight back;
  std::vector<torch::Tensor> y_C;
  for (size_t c = 0; c < routes.size(); ++c) {
    const Dispatched rows = finish_dispatch(std::move(next), routes[c]);
    if (c + 1 < routes.size()) next = start(c + 1, routes[c + 1].first);
    const torch::Tensor weighted_RD =
        num_parts > 1 ? parts[c](rows.rows_RD, rows.rows_u, rows.weight_R)
                      : bank_->forward_weighted(rows.rows_RD, rows.rows_u, rows.weight_R);
    if (c > 0) y_C.push_back(finish_combine(std::move(back), routes[c - 1].first));
    back = start_combine(weighted_RD, routes[c]);
  }
  y_C.push_back(finish_combine(std::move(back), routes.back().first));
  torch::Tensor y_TD = chunks.size() > 1 ? torch::cat(y_C) : y_C.front();
  for (size_t part = 1; part < parts.size(); ++part) y_TD = y_TD + y_C[part];
  return shared_ ? y_TD + shared_TD : y_TD;
}

}  // namespace shoal
