#include "moe/losses/balance_loss.h"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <limits>

#include "parallel/comm/collectives.h"
#include "runtime/device/autograd_function.h"

// T tokens  U units  S scope instances
namespace shoal {
namespace {

bool are_equal(const std::vector<int64_t>& value_S) {
  return std::ranges::all_of(value_S, [&](int64_t value) { return value == value_S[0]; });
}

/// Equal numbers are not copied from the host.
torch::Tensor as_tensor(const std::vector<int64_t>& value_S, const torch::TensorOptions& options) {
  if (!are_equal(value_S))
    return torch::tensor(value_S, torch::kFloat64).to(options, /*non_blocking=*/true);
  return torch::full({static_cast<int64_t>(value_S.size())},
                     value_S.empty() ? 0.0 : static_cast<double>(value_S[0]), options);
}

/// Sums of runs of rows.
torch::Tensor sum_runs(const torch::Tensor& value_TU, const std::vector<int64_t>& length_S) {
  const auto num_runs = static_cast<int64_t>(length_S.size());
  const int64_t width = value_TU.size(1);
  if (num_runs == 1) return value_TU.sum(0, /*keepdim=*/true);
  if (num_runs == 0) return value_TU.reshape({0, 1, width}).sum(1);
  if (are_equal(length_S)) return value_TU.reshape({num_runs, length_S[0], width}).sum(1);
  std::vector<torch::Tensor> sum_S = value_TU.split_with_sizes(length_S);
  for (torch::Tensor& sum : sum_S) sum = sum.sum(0);
  return torch::stack(sum_S);
}

constexpr double kLeastValue = std::numeric_limits<float>::min();

/// Mean and squared variation of a row.
struct Moments {
  double mean = 0, variation = 0;
};

template <class Real>
Moments moments_of(const Real* value_U, int64_t num_units) {
  Moments row;
  for (int64_t u = 0; u < num_units; ++u) row.mean += std::max<double>(value_U[u], kLeastValue);
  row.mean /= static_cast<double>(num_units);
  for (int64_t u = 0; u < num_units; ++u) {
    const double apart = std::max<double>(value_U[u], kLeastValue) / row.mean - 1;
    row.variation += apart * apart;
  }
  row.variation /= static_cast<double>(num_units);
  return row;
}

torch::Tensor variation_on_cpu(const torch::Tensor& value_SU) {
  const int64_t num_units = value_SU.size(1);
  torch::Tensor variation_S = torch::empty({value_SU.size(0)}, value_SU.options());
  AT_DISPATCH_FLOATING_TYPES(value_SU.scalar_type(), "squared_variation", [&] {
    const scalar_t* value = value_SU.const_data_ptr<scalar_t>();
    scalar_t* variation = variation_S.data_ptr<scalar_t>();
    for (int64_t s = 0; s < value_SU.size(0); ++s, value += num_units) {
      variation[s] = static_cast<scalar_t>(moments_of(value, num_units).variation);
    }
  });
  return variation_S;
}

// 2 / (U m) (v / m - 1 - variation).
torch::Tensor variation_backward_on_cpu(const torch::Tensor& grad_S,
                                        const torch::Tensor& value_SU) {
  const int64_t num_units = value_SU.size(1);
  torch::Tensor grad_SU = torch::empty_like(value_SU);
  AT_DISPATCH_FLOATING_TYPES(value_SU.scalar_type(), "squared_variation_backward", [&] {
    const scalar_t* grad = grad_S.const_data_ptr<scalar_t>();
    const scalar_t* value = value_SU.const_data_ptr<scalar_t>();
    scalar_t* out = grad_SU.data_ptr<scalar_t>();
    for (int64_t s = 0; s < value_SU.size(0); ++s, value += num_units, out += num_units) {
      const Moments row = moments_of(value, num_units);
      const double scale = 2.0 * grad[s] / (static_cast<double>(num_units) * row.mean);
      for (int64_t u = 0; u < num_units; ++u) {
        const bool is_clamped = value[u] < kLeastValue;
        out[u] = static_cast<scalar_t>(
            is_clamped ? 0.0 : scale * (value[u] / row.mean - 1 - row.variation));
      }
    }
  });
  return grad_SU;
}

/// value / mean - 1, and the mean. The squares' mean is E[v^2] / mean^2 - 1 without cancellation.
std::pair<torch::Tensor, torch::Tensor> from_mean(const torch::Tensor& value_SU) {
  const torch::Tensor clamped_SU = value_SU.clamp_min(kLeastValue);
  const torch::Tensor mean_S1 = clamped_SU.mean(1, /*keepdim=*/true);
  return {(clamped_SU / mean_S1).sub_(1), mean_S1};
}

torch::Tensor variation_in_steps(const torch::Tensor& value_SU) {
  return from_mean(value_SU).first.square_().mean(1);
}

// 2 / (U m) (v / m - 1 - variation).
torch::Tensor variation_backward_in_steps(const torch::Tensor& grad_S,
                                          const torch::Tensor& value_SU) {
  const auto [apart_SU, mean_S1] = from_mean(value_SU);
  const torch::Tensor variation_S1 = apart_SU.square().mean(1, /*keepdim=*/true);
  const double share = 2.0 / static_cast<double>(value_SU.size(1));
  return (apart_SU - variation_S1)
      .mul_(grad_S.unsqueeze(1) * share)
      .div_(mean_S1)
      .masked_fill_(value_SU.lt(kLeastValue), 0);
}

struct SquaredVariation : torch::autograd::Function<SquaredVariation> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& value_SU) {
    const torch::Tensor value = value_SU.contiguous();
    ctx->save_for_backward({value});
    return value.is_cpu() ? variation_on_cpu(value) : variation_in_steps(value);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    const torch::Tensor grad_S = grads[0].contiguous(), value = ctx->get_saved_variables()[0];
    return {value.is_cpu() ? variation_backward_on_cpu(grad_S, value)
                           : variation_backward_in_steps(grad_S, value)};
  }
};

}  // namespace

Scope::Scope(ScopeKind kind, const TokenContext& context, Communicator& world)
    : kind_(kind), world_(world), device_(context.step.sample_b.device()) {
  const StepContext& step = context.step;
  const bool is_global = kind == ScopeKind::kGlobal;
  const int64_t num_samples = context.num_samples();
  const int64_t size = kind == ScopeKind::kGroup ? step.samples_per_group : 1;
  for (int64_t first = 0; first < (is_global ? 1 : num_samples); first += size) {
    const int64_t end = is_global ? num_samples : std::min(num_samples, first + size);
    const int64_t* offset = context.sample_offsets.data();
    length_S_.push_back(offset[end] - offset[first]);
    item_S_.push_back((end - first) * context.items_per_sample());
  }
  if (!step.length_b.defined()) tokens_in_micro_ = step.samples_in_micro * context.rows_per_sample;
}

torch::Tensor Scope::tokens_S() const {
  const auto options = torch::TensorOptions(torch::kFloat64).device(device_);
  if (kind_ != ScopeKind::kGlobal) return as_tensor(length_S_, options);
  torch::Tensor tokens_S = as_tensor({tokens_in_micro_.value_or(length_S_[0])}, options);
  if (!tokens_in_micro_) all_reduce(world_, tokens_S);
  return tokens_S;
}

torch::Tensor Scope::weighted_sum(const torch::Tensor& value_S) const {
  if (!are_equal(item_S_)) return (value_S * as_tensor(item_S_, value_S.options())).sum();
  return value_S.sum() * (item_S_.empty() ? 0.0 : static_cast<double>(item_S_[0]));
}

torch::Tensor Scope::sum(const torch::Tensor& value_TU) const {
  const torch::Tensor sum_SU = sum_runs(value_TU, length_S_);
  return kind_ == ScopeKind::kGlobal ? all_reduce_sum(sum_SU, world_) : sum_SU;
}

torch::Tensor squared_variation(const torch::Tensor& value_SU) {
  TORCH_CHECK(value_SU.dim() == 2 && value_SU.size(1) > 0, "squared_variation: rows of ",
              value_SU.sizes());
  return SquaredVariation::apply(value_SU);
}

}  // namespace shoal
