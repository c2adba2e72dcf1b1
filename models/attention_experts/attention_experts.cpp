#include "models/attention_experts/attention_experts.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <fmt/format.h>

#include <algorithm>

#include "models/attention_experts/stacked_linear.h"
#include "moe/exchange/slot_exchange.h"
#include "moe/kernels/permute_rows.h"
#include "runtime/base/error.h"
#include "runtime/base/exact_share.h"
#include "runtime/device/device_copy.h"
#include "runtime/device/real_types.h"
#include "runtime/options/automatic_values.h"
#include "runtime/random/random_stream.h"

// B images on this rank  N tokens of an image  D width  T = B N tokens  U experts
// u experts of this rank  I images that have a token for one of them  J those of one expert
// R tokens of one expert  A tokens of this rank in all experts
namespace shoal {

void AttentionExpertOptions::validate(Problems& problems) const {
  if (k && share) problems.add("share", "k is set as well; use one of them");
}

int64_t AttentionExpertOptions::keys_of(const PatchGrid& grid) const {
  const int64_t all = num_candidates(candidates, grid);
  if (share) return std::min(all, ceil_share(grid.tokens(), decimal_of(*share), 1));
  return std::min(all, k.value_or(all));
}

namespace {

/// The router of a layer that is built on `meta`, for checks only.
std::shared_ptr<Router> bare_router(const AttentionExpertsOptions& options) {
  Router::Context context;
  context.width = 1;
  context.num_units = std::ssize(options.experts);
  context.tensor_options = torch::TensorOptions().device(torch::kMeta);
  return Registry<Router>::create(options.router, context);
}

BalanceLosses losses_of(const AttentionExpertsOptions& options, const Router& router) {
  const bool scores_only = options.mixing == Mixing::kSoft;
  return BalanceLosses(options.losses ? *options.losses : usual_losses(router, scores_only));
}

const AutomaticValues<AttentionExpertsOptions> automatic_attention_experts_options;

}  // namespace

void AttentionExpertsOptions::resolve() {
  if (losses || experts.empty()) return;
  losses = usual_losses(*bare_router(*this), mixing == Mixing::kSoft);
}

void AttentionExpertsOptions::validate(Problems& problems) const {
  if (experts.empty()) {
    problems.add("experts", "is empty; give each expert an entry, as - {k: 32}");
    return;
  }
  if (mixing == Mixing::kSoft && soft_steps > 0) {
    problems.add("soft_steps", "mixing is soft all along; use mixing: hard, or leave this out");
  }
  if (has_unnamed(losses)) return;
  const auto made = bare_router(*this);
  made->check("router", problems);
  losses_of(*this, *made).check(*made, router.name(), problems);
  if (made->needs_token_ids()) {
    problems.add("router.by", "patches of images have no vocabulary ids; use position");
  }
  if (mixing == Mixing::kSoft) {
    made->check_scores_only("router", problems);
  } else {
    made->check_without_capacity("router", problems);
  }
  const bool is_ever_soft = mixing == Mixing::kSoft || soft_steps > 0;
  if (is_ever_soft && !made->takes_balance_losses()) {
    problems.add("router.name",
                 fmt::format("{} does not route a token by its own scores, by which soft mixing "
                             "weights the experts; use mixing: hard without soft_steps, or another "
                             "router",
                             router.name()));
  }
}

/// The stacked weights of this rank's experts.
struct AttentionExperts::Bank : ModuleBase {
  struct Layer {
    torch::Tensor weight_uDD, bias_uD;
  };
  Layer query, key, value, out;  ///< key and value are undefined where they are shared

  Bank(const Sizes& sizes, bool has_keys, const torch::TensorOptions& options,
       const std::vector<int64_t>& ids) {
    const auto add = [&](const std::string& name) {
      const Init init = Init::fan_in_uniform(sizes.width);
      return Layer{
          add_stacked_parameter(name + ".weight", {sizes.width, sizes.width}, options, init, ids),
          add_stacked_parameter(name + ".bias", {sizes.width}, options, init, ids)};
    };
    query = add("query");
    if (has_keys) key = add("key");
    if (has_keys) value = add("value");
    out = add("out");
  }
};

namespace {

/// One expert's slice of a stacked layer, in the dtype of its input.
struct ExpertLinear {
  torch::Tensor weight_DO, bias_O;
  torch::Tensor forward(const torch::Tensor& x) const {
    return at::linear(x, weight_DO.t(), bias_O);
  }
};

/// Slices of a stacked layer for all its experts, as one autograd node.
template <class Layer>
std::vector<ExpertLinear> unstack(const Layer& layer, torch::Dtype dtype) {
  std::vector<ExpertLinear> parts;
  if (!layer.weight_uDD.defined() || layer.weight_uDD.size(0) == 0) return parts;
  const std::vector<torch::Tensor> weight = layer.weight_uDD.to(dtype).unbind(0);
  const std::vector<torch::Tensor> bias = layer.bias_uD.to(dtype).unbind(0);
  for (size_t u = 0; u < weight.size(); ++u) parts.push_back({weight[u], bias[u]});
  return parts;
}

/// Several layers with the same input, computed as one product with concatenated outputs.
class JoinedLayers {
 public:
  /// Adds a layer, and returns the first column of its output.
  int64_t add(const ExpertLinear& layer) {
    const int64_t first = columns_;
    weight_.push_back(layer.weight_DO);
    bias_.push_back(layer.bias_O);
    columns_ += layer.bias_O.size(0);
    return first;
  }
  int64_t columns() const { return columns_; }
  torch::Tensor forward(const torch::Tensor& x) const {
    return ExpertLinear{at::cat(weight_, 1), at::cat(bias_)}.forward(x);
  }

 private:
  std::vector<torch::Tensor> weight_, bias_;
  int64_t columns_ = 0;
};

/// Whether an expert has a token of each of the I images.
bool has_every_image(const UnitTokens& tokens, int64_t I) {
  return tokens.has_all() || tokens.image_J.size(0) == I;
}

/// All rows of the images that have a token for an expert, [J N, D].
torch::Tensor rows_of_images(const torch::Tensor& x_IND, const UnitTokens& tokens) {
  return x_IND.index_select(0, tokens.image_J).flatten(0, 1);
}

/// Applies an expert's slice of a stacked layer to the rows of each expert.
template <class Layer>
torch::Tensor apply_stacked(const Layer& layer, const torch::Tensor& x_RD,
                            const std::vector<int64_t>& rows_u) {
  const torch::Dtype dtype = x_RD.scalar_type();
  return stacked_linear(x_RD, rows_u, layer.weight_uDD.to(dtype), layer.bias_uD.to(dtype));
}

std::vector<int64_t> rows_of_experts(const std::vector<TopKPart>& experts) {
  std::vector<int64_t> rows;
  for (const TopKPart& expert : experts) rows.push_back(expert.queries.offset_i1.back());
  return rows;
}

}  // namespace

AttentionExperts::AttentionExperts(const AttentionExpertsOptions& options, const Sizes& sizes,
                                   const std::string& path, const BuildContext& context)
    : MoeStage(path), options_(options), sizes_(sizes), grid_(context.grid) {
  const auto num_experts = std::ssize(options.experts);
  std::vector<double> cost_U;
  for (int64_t e = 0; e < num_experts; ++e) {
    if (options.experts[static_cast<size_t>(e)].keys_of(sizes.grid) < 1) {
      throw ConfigError(fmt::format("{}.experts[{}]: a query has no candidates", path, e));
    }
    // k breaks ties between experts with equally many candidates.
    cost_U.push_back(multiply_adds_of_query(e) +
                     static_cast<double>(attention_of(e).k * sizes.width));
  }
  placement_ = placement_rule(context, path)(cost_U);
  Router::Context router;
  router.width = sizes.width;
  router.num_units = num_experts;
  router.tensor_options = context.tensor_options.dtype(wide_dtype(context.tensor_options));
  router.layer = grid_ == nullptr ? "" : path;
  router_ = register_module("router", Registry<Router>::create(options.router, router));
  const bool shares_keys = options.mixing == Mixing::kHardSharedKv;
  const int64_t rank = grid_ == nullptr ? 0 : grid_->expert->rank();
  bank_ =
      register_module("experts", std::make_shared<Bank>(sizes, !shares_keys, context.tensor_options,
                                                        placement_.units_of_rank(rank)));
  if (shares_keys) {
    const Init init = Init::fan_in_uniform(sizes.width);
    key_value_ = register_module(
        "key_value", Linear(sizes.width, 2 * sizes.width, context.tensor_options, init, init));
  }
  losses_ = losses_of(options, *router_);
}

MoeStageInfo AttentionExperts::info() const {
  const bool is_soft = options_.mixing == Mixing::kSoft;
  const int64_t num_units = placement_.num_units();
  const bool is_balanced = is_soft || !router_->needs_balance_loss() || losses_.evens_out_loads();
  return {.name = path(),
          .num_units = num_units,
          .units_per_token = is_soft ? num_units : router_->units_per_token(),
          .note = router_->note(),
          .unbalanced = is_balanced ? "" : options_.router.name()};
}

std::vector<SparsePlace> AttentionExperts::sparse_places() const {
  std::vector<SparsePlace> places;
  for (const auto& layer : {bank_->query, bank_->key, bank_->value, bank_->out}) {
    if (!layer.weight_uDD.defined()) continue;
    places.push_back({layer.weight_uDD, true, placement_.num_units()});
  }
  return places;
}

void AttentionExperts::after_step() { router_->after_step(grid_->tensor_world()); }

bool AttentionExperts::is_soft(const StepContext& step) const {
  return options_.mixing == Mixing::kSoft || (step.training && step.step < options_.soft_steps);
}

AttentionExperts::Weights AttentionExperts::weights_of(const Routing& routing, bool is_soft) const {
  if (is_soft) return {routing.prob_TU, torch::Tensor()};
  const int64_t T = routing.num_tokens(), U = routing.num_units;
  // Masked choices are written to an extra column.
  const torch::Tensor column_TK = routing.unit_TK.where(routing.unit_TK >= 0, U);
  const auto spread = [&](const torch::Tensor& value_TK) {
    return torch::zeros({T, U + 1}, value_TK.options())
        .scatter(1, column_TK, value_TK)
        .narrow(1, 0, U);
  };
  return {spread(routing.weight_TK * routing.weight_scale),
          spread(torch::ones(column_TK.sizes(), column_TK.options().dtype(torch::kBool)))};
}

MoeOutput AttentionExperts::forward(const torch::Tensor& x_BND, const StepContext& step) {
  TORCH_CHECK(grid_ != nullptr, path(), ": built without ranks, cannot run");
  const int64_t B = x_BND.size(0), N = sizes_.grid.tokens();
  TORCH_CHECK(x_BND.sizes() == at::IntArrayRef({step.sample_b.size(0), N, sizes_.width}), path(),
              ": x is ", x_BND.sizes(), ", expected ",
              at::IntArrayRef({step.sample_b.size(0), N, sizes_.width}));
  const TokenContext context = make_token_context(step, hash_name(path()), N);
  const Routing routing = router_->route(x_BND.reshape({B * N, sizes_.width}), context);
  const bool is_soft = this->is_soft(step);
  const Weights weights = weights_of(routing, is_soft);

  const ImageExchange exchange = exchange_of(x_BND, weights.is_routed_TU, step);
  MoeOutput output;
  output.y_BRD = is_soft && grid_->expert->size() == 1
                     ? mix_all(x_BND, weights.weight_TU, exchange)
                     : exchange_and_mix(x_BND, weights.weight_TU, exchange);
  BalanceLosses::Sums losses;
  const bool has_losses = step.training && !losses_.names().empty();
  if (has_losses) losses = losses_.evaluate(routing, context, grid_->tensor_world());
  output.auxiliary_loss = losses.auxiliary_loss;
  output.stats = stats(routing, exchange.counts(), weights.is_routed_TU, losses);
  if (!step.training) output.stats.first_unit_T = router_->first_units(routing);
  return output;
}

ImageExchange AttentionExperts::exchange_of(const torch::Tensor& x_BND,
                                            const torch::Tensor& is_routed_TU,
                                            const StepContext& step) const {
  const int64_t B = x_BND.size(0), N = x_BND.size(1);
  Communicator& expert = *grid_->expert;
  const ImageExchange::Layout layout{
      placement_, expert.size() == 1 ? std::vector<int64_t>{B} : images_of_ranks(step, *grid_),
      expert};
  if (!is_routed_TU.defined()) return {N, x_BND.device(), layout};
  return {is_routed_TU.view({B, N, placement_.num_units()}).transpose(1, 2), layout};
}

torch::Tensor AttentionExperts::exchange_and_mix(const torch::Tensor& x_BND,
                                                 const torch::Tensor& weight_TU,
                                                 const ImageExchange& exchange) const {
  const torch::Tensor rows_AD = exchange.to_images(run_experts(exchange.to_units(x_BND), exchange));
  const torch::Tensor weight_A = weight_TU.reshape({-1}).index_select(
      0, exchange.token_A() * weight_TU.size(1) + exchange.unit_A());
  return combine_rows(rows_AD, weight_A, make_row_index(exchange.token_A(), weight_TU.size(0)))
      .view_as(x_BND);
}

torch::Tensor AttentionExperts::mix_all(const torch::Tensor& x_BND, const torch::Tensor& weight_TU,
                                        const ImageExchange& exchange) const {
  const torch::Dtype dtype = x_BND.scalar_type();
  Projections projections = project(x_BND, exchange);
  const size_t weights = projections.rows.size();
  projections.rows.push_back(weight_TU);
  for (size_t u = 0; u < projections.experts.size(); ++u) {
    projections.experts[u].weight = {weights, static_cast<int64_t>(u)};
  }
  const torch::Tensor attended =
      top_k_attention_of(projections.rows, projections.experts, sizes_.width, /*dim=*/1);
  const Bank::Layer& out = bank_->out;
  const torch::Tensor bias_TD = weight_TU.to(dtype).mm(out.bias_uD.to(dtype));
  return at::addmm(bias_TD, attended, out.weight_uDD.to(dtype).flatten(0, 1)).view_as(x_BND);
}

torch::Tensor AttentionExperts::run_experts(const torch::Tensor& x_IND,
                                            const ImageExchange& exchange) const {
  const Projections projections = project(x_IND, exchange);
  if (projections.experts.empty()) {
    // Shared parameters need gradients on every rank. The bank's empty ones get theirs at the place
    // of the backward pass where other ranks have rows, so that all sums start in one order.
    const torch::Tensor& all = key_value_ ? projections.rows[0] : x_IND.flatten(0, 1);
    torch::Tensor rows_RD = all.narrow(0, 0, 0).narrow(1, 0, sizes_.width);
    for (const Bank::Layer& layer : {bank_->query, bank_->key, bank_->value, bank_->out}) {
      if (layer.weight_uDD.defined()) rows_RD = apply_stacked(layer, rows_RD, {});
    }
    return rows_RD;
  }
  const torch::Tensor attended_RD =
      top_k_attention_of(projections.rows, projections.experts, sizes_.width, /*dim=*/0);
  return apply_stacked(bank_->out, attended_RD, rows_of_experts(projections.experts));
}

AttentionExperts::Projections AttentionExperts::project(const torch::Tensor& x_IND,
                                                        const ImageExchange& exchange) const {
  Projections result;
  const std::vector<int64_t>& ids = placement_.units_of_rank(grid_->expert->rank());
  for (size_t u = 0; u < ids.size(); ++u) {
    TopKPart& expert = result.experts.emplace_back();
    expert.queries = exchange.tokens_u()[u].queries;
    expert.options = attention_of(ids[u]);
  }
  if (key_value_) result.add(key_value_->forward(x_IND).flatten(0, 1));
  project_all_rows(x_IND, exchange.tokens_u(), result);
  project_chosen_queries(x_IND.flatten(0, 1), exchange.tokens_u(), result);
  project_keys_of_some_images(x_IND, exchange.tokens_u(), result);
  return result;
}

void AttentionExperts::project_all_rows(const torch::Tensor& x_IND,
                                        const std::vector<UnitTokens>& tokens_u,
                                        Projections& to) const {
  const torch::Dtype dtype = x_IND.scalar_type();
  const std::vector<ExpertLinear> query = unstack(bank_->query, dtype),
                                  key = unstack(bank_->key, dtype),
                                  value = unstack(bank_->value, dtype);
  const size_t joined = to.rows.size();
  JoinedLayers layers;
  for (size_t u = 0; u < tokens_u.size(); ++u) {
    TopKPart& expert = to.experts[u];
    if (tokens_u[u].has_all()) expert.query = {joined, layers.add(query[u])};
    if (!has_every_image(tokens_u[u], x_IND.size(0))) continue;
    expert.key = key_value_ ? Columns{0, 0} : Columns{joined, layers.add(key[u])};
    expert.value = key_value_ ? Columns{0, sizes_.width} : Columns{joined, layers.add(value[u])};
  }
  if (layers.columns() > 0) to.add(layers.forward(x_IND.flatten(0, 1)));
}

void AttentionExperts::project_chosen_queries(const torch::Tensor& x_TD,
                                              const std::vector<UnitTokens>& tokens_u,
                                              Projections& to) const {
  std::vector<torch::Tensor> chosen;
  std::vector<int64_t> count_u;
  for (const UnitTokens& tokens : tokens_u) {
    count_u.push_back(tokens.has_all() ? 0 : tokens.row_R.size(0));
    if (!tokens.has_all()) chosen.push_back(tokens.row_R);
  }
  if (chosen.empty()) return;
  const size_t queries = to.add(apply_stacked(
      bank_->query, gather_rows(x_TD, make_row_index(at::cat(chosen), x_TD.size(0))), count_u));
  int64_t first = 0;
  for (size_t u = 0; u < tokens_u.size(); ++u) {
    if (tokens_u[u].has_all()) continue;
    to.experts[u].query = {queries, 0};
    to.experts[u].first_query = std::exchange(first, first + count_u[u]);
  }
}

void AttentionExperts::project_keys_of_some_images(const torch::Tensor& x_IND,
                                                   const std::vector<UnitTokens>& tokens_u,
                                                   Projections& to) const {
  const int64_t I = x_IND.size(0), D = sizes_.width;
  const auto has_every = [I](const UnitTokens& tokens) { return has_every_image(tokens, I); };
  if (std::ranges::all_of(tokens_u, has_every)) return;
  const std::vector<ExpertLinear> key = unstack(bank_->key, x_IND.scalar_type()),
                                  value = unstack(bank_->value, x_IND.scalar_type());
  for (size_t u = 0; u < tokens_u.size(); ++u) {
    if (has_every(tokens_u[u])) continue;
    torch::Tensor keys;
    if (key_value_) {
      keys = rows_of_images(to.rows[0].view({I, -1, 2 * D}), tokens_u[u]);
    } else {
      JoinedLayers layers;
      layers.add(key[u]);
      layers.add(value[u]);
      keys = layers.forward(rows_of_images(x_IND, tokens_u[u]));
    }
    const size_t place = to.add(keys);
    to.experts[u].key = {place, 0};
    to.experts[u].value = {place, D};
  }
}

TopKOptions AttentionExperts::attention_of(int64_t expert) const {
  const AttentionExpertOptions& options = options_.experts[static_cast<size_t>(expert)];
  const int64_t keys = options.keys_of(sizes_.grid);
  const bool has_all = keys == num_candidates(options.candidates, sizes_.grid);
  return {sizes_.heads, has_all ? sizes_.grid.tokens() : keys, options.candidates, sizes_.grid};
}

void AttentionExperts::list_products(double rows, ProductList& list) const {
  const auto num_experts = static_cast<double>(placement_.num_units());
  const double per_token =
      options_.mixing == Mixing::kSoft ? num_experts : router_->routed_per_token();
  const double routed = rows * per_token;
  list.visit(*router_, rows);
  list.route(path(), routed * static_cast<double>(sizes_.width), [&] {
    const auto add = [&](const Bank::Layer& layer, double rows_of_layer) {
      list.apply(layer.weight_uDD, rows_of_layer);
      list.apply(layer.bias_uD, rows_of_layer);
    };
    add(bank_->query, routed);
    add(bank_->key, rows * num_experts);
    add(bank_->value, rows * num_experts);
    add(bank_->out, routed);
  });
  if (key_value_) list.visit(*key_value_, rows);
  double between = 0;
  for (int64_t e = 0; e < placement_.num_units(); ++e) between += between_activations_of_query(e);
  list.between(rows * (between * per_token / num_experts));
}

double AttentionExperts::between_activations_of_query(int64_t expert) const {
  const auto width = static_cast<double>(sizes_.width);
  const KeyCandidates& candidates = options_.experts[static_cast<size_t>(expert)].candidates;
  // Products compute all logits, of which candidates are a mask; blocks need logits of their own.
  const bool has_blocks = candidates.from == CandidateKind::kPooled;
  const int64_t blocks = has_blocks ? num_blocks(candidates, sizes_.grid) : 0;
  return width * static_cast<double>(2 * sizes_.grid.tokens() + blocks);
}

double AttentionExperts::multiply_adds_of_query(int64_t expert) const {
  const auto width = static_cast<double>(sizes_.width);
  return 2 * width * width + between_activations_of_query(expert);
}

double AttentionExperts::multiply_adds(const RoutedCounts& counts) const {
  double sum = 0.0;
  int64_t images = 0;  // whose keys and values are computed, once for each expert or for all
  for (size_t e = 0; e < counts.tokens_U.size(); ++e) {
    sum +=
        static_cast<double>(counts.tokens_U[e]) * multiply_adds_of_query(static_cast<int64_t>(e));
    images += counts.images_U[e];
  }
  if (key_value_) images = counts.images;
  const auto width = static_cast<double>(sizes_.width);
  return sum + static_cast<double>(images * sizes_.grid.tokens()) * 2 * width * width;
}

MoeStats AttentionExperts::stats(const Routing& routing, const RoutedCounts& counts,
                                 const torch::Tensor& is_routed_TU,
                                 const BalanceLosses::Sums& losses) const {
  const torch::NoGradGuard no_grad;
  const bool is_soft = !is_routed_TU.defined();
  StatSums sums;
  sums.tokens = routing.num_tokens();
  sums.choices = is_soft ? sums.tokens : routing.unit_TK.numel();
  const int64_t routed = is_soft ? sums.choices : sum(counts.tokens_U);
  if (routed < sums.choices) {
    if (!router_->chooses_per_unit())
      sums.kept = torch::full({}, routed, routing.unit_TK.options());
    sums.unrouted = is_routed_TU.any(1).logical_not_().sum();
  }
  sums.load_U = is_soft ? routing.prob_TU.sum(0, /*keepdim=*/false, torch::kFloat64)
                        : send_to(counts.tokens_U, routing.unit_TK.device()).to(torch::kFloat64);
  if (routing.prob_TU.defined()) {
    sums.entropy = entropy_sum(routing.prob_TU);
    sums.score_U = routing.prob_TU.sum(0, /*keepdim=*/false, torch::kFloat64);
  }
  sums.multiply_adds = multiply_adds(counts);
  sums.losses = losses.values;
  MoeStats result =
      make_stats(path(), placement_, sums,
                 losses.values.empty() ? std::vector<std::string>() : losses_.names());
  result.load_is_work = !is_soft;
  return result;
}

}  // namespace shoal
