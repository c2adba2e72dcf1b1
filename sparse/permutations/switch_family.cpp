#include "sparse/permutations/switch_family.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "runtime/base/text.h"
#include "runtime/random/random.h"

namespace shoal {
namespace {

/// Standard deviation of the initial logits.
constexpr double kSpread = 0.5;
/// Number of columns of P formed at a time to compute distances.
constexpr int64_t kColumnsAtATime = 64;

}  // namespace

int64_t log2_of(int64_t side) { return std::countr_zero(static_cast<uint64_t>(side)); }

std::string SwitchFamily::misfit(const Grouping& grouping) const {
  const auto& [size, groups, noun] = grouping;
  const auto fits = [this](int64_t side) {
    return side >= least_side() && std::has_single_bit(static_cast<uint64_t>(side));
  };
  if (size % groups == 0 && fits(size / groups)) return "";
  const std::string what =
      fmt::format("{} {} in {}: {} needs groups whose size is a power of 2, at least {}", size,
                  noun, counted(groups, "group"), name(), least_side());
  const int64_t side = int64_t{1} << log2_of(size);
  if (!fits(side)) {
    return what +
           ", and none divide them; leave the layer out of sparsity.layers, or use "
           "permutation: {name: learned}";
  }
  return fmt::format("{}; set groups: {} ({} of {}), or leave the layer out of sparsity.layers",
                     what, size / side, counted(size / side, "group"), side);
}

void SwitchFamily::fill(const torch::Tensor& logit_G, double mix, const Stream& stream) const {
  const double passed = static_cast<double>(num_passed(side_of(logit_G)));
  const double straight = std::pow(mix, 1.0 / passed);
  fill_normal(logit_G, stream);
  logit_G.mul_(kSpread).add_(std::log((1.0 - straight) / straight));
  if (near_ == FirstSwitches::kIdentity) return;
  Stream other = stream;  // numbers of their own
  other.step = 1;
  logit_G.mul_(1.0 - 2.0 * random_switches(logit_G, other));
}

torch::Tensor SwitchFamily::product(const torch::Tensor& logit_uG, const torch::Tensor& x_uG,
                                    Factor factor) const {
  // X P is Pᵀ applied to each row of X.
  const bool is_transposed = factor.is_left == factor.is_transposed;
  const torch::Tensor x_uGasb = factor.is_left ? x_uG.unsqueeze(2) : x_uG.unsqueeze(4);
  return switched(logit_uG.sigmoid(), x_uGasb, is_transposed).reshape(x_uG.sizes());
}

torch::Tensor SwitchFamily::penalty(const torch::Tensor& logit_uG) const {
  const torch::Tensor p_uGN = logit_uG.sigmoid().flatten(2);
  return (p_uGN * (1.0 - p_uGN)).mean(2) * 4.0;
}

torch::Tensor SwitchFamily::penalty_gradient(const torch::Tensor& logit_uG) const {
  const torch::Tensor p_uG = logit_uG.sigmoid();
  const auto num_switches = static_cast<double>(logit_uG.size(2) * logit_uG.size(3));
  return p_uG * (1.0 - p_uG) * (1.0 - 2.0 * p_uG) * (4.0 / num_switches);
}

torch::Tensor SwitchFamily::index(const torch::Tensor& logit_uG) const {
  const int64_t u = logit_uG.size(0), groups = logit_uG.size(1), side = side_of(logit_uG);
  const torch::Tensor rounded_uG = (logit_uG > 0).to(torch::kFloat64);
  const torch::Tensor member_s = at::arange(side, rounded_uG.options());
  return switched(rounded_uG, member_s.view({1, 1, 1, side, 1}).expand({u, groups, 1, side, 1}),
                  /*is_transposed=*/false)
      .reshape({u, groups, side})
      .to(torch::kInt64);
}

torch::Tensor SwitchFamily::squared_distance(const torch::Tensor& logit_uG) const {
  const torch::Tensor wide_uG = logit_uG.to(torch::kFloat64);
  const int64_t u = wide_uG.size(0), groups = wide_uG.size(1), side = side_of(wide_uG);
  torch::Tensor sum_u = at::zeros({u}, wide_uG.options());
  for (int64_t begin = 0; begin < side; begin += kColumnsAtATime) {
    const int64_t columns = std::min(kColumnsAtATime, side - begin);
    torch::Tensor identity_sb = at::zeros({side, columns}, wide_uG.options());
    identity_sb.narrow(0, begin, columns).fill_diagonal_(1.0);
    const torch::Tensor p_uGsb =
        product(wide_uG, identity_sb.expand({u, groups, side, columns}), {true, false});
    sum_u += (p_uGsb - identity_sb).square().sum({1, 2, 3});
  }
  return sum_u;
}

}  // namespace shoal
