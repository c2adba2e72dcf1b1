#include "moe/losses/balance_loss.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <limits>

#include "parallel/comm/collectives.h"
#include "runtime/device/operator.h"

// T tokens  U units  S scope instances
namespace shoal {
namespace {

/// Token offsets of the instances.
std::vector<int64_t> offsets_of(ScopeKind kind, const TokenContext& context) {
  if (kind == ScopeKind::kGroup) return context.group_offsets;
  if (kind == ScopeKind::kGlobal) return {0, context.num_tokens()};
  std::vector<int64_t> offsets;
  for (int64_t token = 0; token <= context.num_tokens(); token += context.tokens_per_sample) {
    offsets.push_back(token);
  }
  return offsets;
}

/// Sums of runs of rows. Runs are equally long, but for the last one.
torch::Tensor sum_runs(const torch::Tensor& value_TU, const std::vector<int64_t>& offsets) {
  const auto num_runs = static_cast<int64_t>(offsets.size()) - 1;
  const int64_t width = value_TU.size(1);
  if (num_runs == 1) return value_TU.sum(0, /*keepdim=*/true);
  if (num_runs == 0) return value_TU.reshape({0, 1, width}).sum(1);
  const int64_t length = offsets[1];
  const int64_t last = offsets[static_cast<size_t>(num_runs) - 1];
  if (offsets.back() - last == length) return value_TU.reshape({num_runs, length, width}).sum(1);
  const torch::Tensor full =
      value_TU.narrow(0, 0, last).reshape({num_runs - 1, length, width}).sum(1);
  return torch::cat({full, value_TU.narrow(0, last, offsets.back() - last).sum(0, true)});
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kLeastValue = std::numeric_limits<float>::min();

struct SquaredVariation : torch::autograd::Function<SquaredVariation> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& value_SU) {
    static const Operator<torch::Tensor(const torch::Tensor&, double)> op(
        "shoal::squared_variation");
    const torch::Tensor value = value_SU.contiguous();
    ctx->save_for_backward({value});
    return op(value, kLeastValue);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    static const Operator<torch::Tensor(const torch::Tensor&, const torch::Tensor&, double)> op(
        "shoal::squared_variation_backward");
    return {op(grads[0].contiguous(), ctx->get_saved_variables()[0], kLeastValue)};
  }
};

/// value / mean - 1, and the mean. E[v^2] / mean^2 - 1 without its cancellation is the mean of the
/// squares.
std::pair<torch::Tensor, torch::Tensor> from_mean(const torch::Tensor& value_SU, double least) {
  const torch::Tensor clamped_SU = value_SU.clamp_min(least);
  const torch::Tensor mean_S1 = clamped_SU.mean(1, /*keepdim=*/true);
  return {(clamped_SU / mean_S1).sub_(1), mean_S1};
}

torch::Tensor squared_variation_in_steps(const torch::Tensor& value_SU, double least) {
  return from_mean(value_SU, least).first.square_().mean(1);
}

// 2 / (U m) (v / m - 1 - variation).
torch::Tensor squared_variation_backward_in_steps(const torch::Tensor& grad_S,
                                                  const torch::Tensor& value_SU, double least) {
  const auto [apart_SU, mean_S1] = from_mean(value_SU, least);
  const torch::Tensor variation_S1 = apart_SU.square().mean(1, /*keepdim=*/true);
  const double share = 2.0 / static_cast<double>(value_SU.size(1));
  return (apart_SU - variation_S1)
      .mul_(grad_S.unsqueeze(1) * share)
      .div_(mean_S1)
      .masked_fill_(value_SU.lt(least), 0);
}

}  // namespace

Scope::Scope(ScopeKind kind, const TokenContext& context, Communicator& world)
    : kind_(kind),
      world_(world),
      offsets_(offsets_of(kind, context)),
      device_(context.step.sample_b.device()),
      tokens_in_micro_(context.step.samples_in_micro * context.tokens_per_sample) {}

// Runs are equally long, but for the last one: nothing is copied from the host.
torch::Tensor Scope::tokens_S() const {
  const int64_t num_runs = num_instances();
  int64_t first = num_runs > 0 ? offsets_[1] : 0;
  if (kind_ == ScopeKind::kGlobal) first = tokens_in_micro_;
  torch::Tensor tokens_S = torch::full({num_runs}, static_cast<double>(first),
                                       torch::TensorOptions(torch::kFloat64).device(device_));
  if (num_runs > 1) {
    tokens_S.narrow(0, num_runs - 1, 1).fill_(static_cast<double>(last_length()));
  }
  return tokens_S;
}

torch::Tensor Scope::total(const torch::Tensor& value_S) const {
  const int64_t num_runs = num_instances();
  const auto first = static_cast<double>(num_runs > 0 ? offsets_[1] : 0);
  const auto last = static_cast<double>(last_length());
  if (num_runs < 2 || first == last) return value_S.sum() * first;
  return value_S.narrow(0, 0, num_runs - 1).sum() * first + value_S[num_runs - 1] * last;
}

int64_t Scope::last_length() const {
  return num_instances() == 0 ? 0 : offsets_.back() - offsets_[offsets_.size() - 2];
}

torch::Tensor Scope::sum(const torch::Tensor& value_TU) const {
  const torch::Tensor sum_SU = sum_runs(value_TU, offsets_);
  return kind_ == ScopeKind::kGlobal ? all_reduce_sum(sum_SU, world_) : sum_SU;
}

torch::Tensor squared_variation(const torch::Tensor& value_SU) {
  TORCH_CHECK(value_SU.dim() == 2 && value_SU.size(1) > 0, "squared_variation: rows of ",
              value_SU.sizes());
  return SquaredVariation::apply(value_SU);
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def("squared_variation(Tensor value, float least) -> Tensor");
  m.def("squared_variation_backward(Tensor grad, Tensor value, float least) -> Tensor");
}

TORCH_LIBRARY_IMPL(shoal, CompositeExplicitAutograd, m) {
  m.impl("squared_variation", squared_variation_in_steps);
  m.impl("squared_variation_backward", squared_variation_backward_in_steps);
}

}  // namespace shoal
