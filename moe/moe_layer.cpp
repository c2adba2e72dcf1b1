#include "moe/moe_layer.h"

#include "moe/dispatch.h"
#include "runtime/error.h"
#include "runtime/stream.h"

// B samples  R rows per sample  T = B R tokens  D width  U units  S scope instances
namespace shoal {
namespace {

/// Collects problems as lines of a ConfigError.
class Lines : public Problems {
 public:
  explicit Lines(const std::string& layer) : layer_(layer) {}
  void add(std::string_view path, std::string_view what) override {
    lines.push_back(layer_ + "." + std::string(path) + ": " + std::string(what));
  }
  std::vector<std::string> lines;

 private:
  std::string layer_;
};

struct Parts {
  std::shared_ptr<UnitBank> bank;
  std::shared_ptr<Router> router;
  std::vector<std::shared_ptr<BalanceLoss>> losses;
};

Parts build(const MoeOptions& options, const UnitBank::Context& bank_context) {
  Parts parts;
  parts.bank = Registry<UnitBank>::create(options.experts, bank_context);
  const torch::TensorOptions& tensors = bank_context.tensor_options;
  const bool is_double = torch::typeMetaToScalarType(tensors.dtype()) == torch::kFloat64;
  parts.router = Registry<Router>::create(
      options.router, {bank_context.width, parts.bank->placement().num_units(),
                       tensors.dtype(is_double ? torch::kFloat64 : torch::kFloat32)});
  for (const auto& loss : options.losses) {
    parts.losses.push_back(Registry<BalanceLoss>::create(loss, {}));
  }
  return parts;
}

/// Rules between the sections.
void check(const Parts& parts, Problems& problems) {
  parts.router->check("router", problems);
  for (size_t i = 0; i < parts.losses.size(); ++i) {
    const std::string objection = parts.losses[i]->objection(*parts.router);
    if (!objection.empty()) problems.add("losses[" + std::to_string(i) + "]", objection);
  }
}

torch::Tensor entropy_sum(const torch::Tensor& prob_TU) {
  // 0 log 0 is 0. Of a float64 score below this the log is wrong, but the product below 1e-35.
  constexpr double kTiny = 1e-38;
  return -prob_TU.clamp_min(kTiny).log_().mul_(prob_TU).sum(torch::kFloat64);
}

/// The sums of MoeStats but those of the losses.
torch::Tensor layer_sums(const Routing& routing, const Assignments& assignments) {
  const torch::NoGradGuard no_grad;
  const int64_t num_units = routing.num_units();
  // Place 0 takes the masked choices.
  torch::Tensor chosen = torch::zeros({num_units + 1}, torch::kFloat64);
  const torch::Tensor unit = routing.unit_TK.flatten() + 1;
  chosen.index_add_(0, unit, torch::ones({unit.size(0)}, torch::kFloat64));
  const torch::Tensor fixed =
      torch::tensor({static_cast<double>(routing.num_tokens()), static_cast<double>(unit.size(0)),
                     static_cast<double>(assignments.num_kept)},
                    torch::kFloat64);
  return torch::cat(
      {chosen.narrow(0, 1, num_units), fixed, entropy_sum(routing.prob_TU).reshape({1})});
}

}  // namespace

void MoeOptions::validate(Problems& problems) const {
  for (const auto& loss : losses) {
    if (loss.is_empty()) return;  // an environment variable that is not set
  }
  UnitBank::Context context;
  context.width = 1;
  context.tensor_options = torch::TensorOptions().device(torch::kMeta);
  check(build(*this, context), problems);
}

MoeLayer::MoeLayer(const MoeOptions& options, int64_t width, const std::string& path,
                   const BuildContext& context)
    : path_(path), capacity_(options.capacity), grid_(context.grid) {
  UnitBank::Context bank_context;
  bank_context.width = width;
  bank_context.tensor_options = context.tensor_options;
  if (grid_ != nullptr) {
    bank_context.num_ranks = grid_->expert->size();
    bank_context.rank = grid_->expert->rank();
  }
  Parts parts = build(options, bank_context);
  Lines problems(path);
  check(parts, problems);
  if (!problems.lines.empty()) throw ConfigError(problems.lines);
  router_ = register_module("router", parts.router);
  bank_ = register_module("experts", parts.bank);
  losses_ = std::move(parts.losses);
}

MoeOutput MoeLayer::forward(const torch::Tensor& x_BRD, const StepContext& step) {
  TORCH_CHECK(grid_ != nullptr, path_, ": built without ranks, cannot run");
  TORCH_CHECK(x_BRD.dim() == 3 && x_BRD.size(0) == step.sample_b.size(0), path_, ": x is ",
              x_BRD.sizes(), ", the step has ", step.sample_b.size(0), " samples");
  const torch::Tensor x_TD = x_BRD.reshape({x_BRD.size(0) * x_BRD.size(1), x_BRD.size(2)});
  const TokenContext context = make_token_context(step, hash_name(path_), x_BRD.size(1));
  const Routing routing = router_->route(x_TD, context);

  Capacity capacity = capacity_;
  if (!step.training) capacity.mode = CapacityMode::kDropless;
  const Assignments assignments = router_->assign(routing, capacity);
  const Dispatched sent = dispatch(x_TD, assignments, bank_->placement(), *grid_->expert);
  const torch::Tensor rows_RD = bank_->forward(sent.rows_RD, sent.rows_u);
  const torch::Tensor y_TD = combine(rows_RD, sent, *grid_->expert);

  MoeOutput output;
  output.y_BRD = y_TD.reshape({x_BRD.size(0), x_BRD.size(1), y_TD.size(1)});
  output.stats = {path_, bank_->placement(), {}, layer_sums(routing, assignments)};
  if (step.training && !losses_.empty()) {
    output.auxiliary_loss = balance(routing, context, output.stats);
  }
  return output;
}

torch::Tensor MoeLayer::balance(const Routing& routing, const TokenContext& context,
                                MoeStats& stats) const {
  torch::Tensor total;
  std::vector<torch::Tensor> sums{stats.sums};
  for (const auto& loss : losses_) {
    const Scope scope(loss->scope(), context, *grid_->world);
    const torch::Tensor value_S = loss->value_S(routing, scope);
    const torch::Tensor own_tokens_S = scope.own_tokens_S().to(value_S.options());
    const torch::Tensor sum = (value_S * own_tokens_S).sum();
    const torch::Tensor share =
        sum * (loss->weight() / static_cast<double>(scope.tokens_in_step()));
    total = total.defined() ? total + share : share;
    stats.loss_names.emplace_back(loss->name());
    sums.push_back(sum.detach().to(torch::kFloat64).reshape({1}));
  }
  stats.sums = torch::cat(sums);
  return total;
}

void MoeLayer::after_step() { router_->after_step(*grid_->world); }

}  // namespace shoal
