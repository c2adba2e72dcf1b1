#include "moe/balance_loss.h"

#include "parallel/collectives.h"

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

/// Lengths of runs, float64 [S]: equal, but for the last one. Nothing is copied from the host.
torch::Tensor lengths(const std::vector<int64_t>& offsets, torch::Device device) {
  const auto num_runs = static_cast<int64_t>(offsets.size()) - 1;
  const auto first = static_cast<double>(num_runs > 0 ? offsets[1] : 0);
  torch::Tensor lengths =
      torch::full({num_runs}, first, torch::TensorOptions(torch::kFloat64).device(device));
  if (num_runs > 1) {
    const int64_t last = offsets.back() - offsets[static_cast<size_t>(num_runs) - 1];
    lengths.narrow(0, num_runs - 1, 1).fill_(static_cast<double>(last));
  }
  return lengths;
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

}  // namespace

Scope::Scope(ScopeKind kind, const TokenContext& context, Communicator& world)
    : kind_(kind),
      world_(world),
      offsets_(offsets_of(kind, context)),
      tokens_in_step_(context.step.samples_in_step * context.tokens_per_sample) {
  own_tokens_S_ = lengths(offsets_, context.step.sample_b.device());
  tokens_S_ =
      kind == ScopeKind::kGlobal
          ? torch::full_like(own_tokens_S_, static_cast<double>(context.step.samples_in_micro *
                                                                context.tokens_per_sample))
          : own_tokens_S_;
}

torch::Tensor Scope::sum(const torch::Tensor& value_TU) const {
  const torch::Tensor sum_SU = sum_runs(value_TU, offsets_);
  return kind_ == ScopeKind::kGlobal ? all_reduce_sum(sum_SU, world_) : sum_SU;
}

torch::Tensor squared_variation(const torch::Tensor& value_SU) {
  // E[v^2] / mean^2 - 1 without its cancellation.
  return (value_SU / value_SU.mean(1, /*keepdim=*/true) - 1).square().mean(1);
}

}  // namespace shoal
