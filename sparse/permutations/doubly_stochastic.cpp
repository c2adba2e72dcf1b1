#include "sparse/permutations/doubly_stochastic.h"

#include <ATen/ops/eye.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "runtime/base/integers.h"
#include "runtime/random/random.h"
#include "sparse/permutations/assignment.h"
#include "sparse/permutations/soft_method.h"

namespace shoal {
namespace {

/// Penalty of a matrix with equal entries, by which penalties are normalised.
double largest_penalty(int64_t side) {
  const auto s = static_cast<double>(side);
  return 2.0 * s * (1.0 - 1.0 / std::sqrt(s));
}

torch::Tensor divided_by_norm(const torch::Tensor& m_Gss, int64_t dim) {
  const torch::Tensor norm = m_Gss.square().sum(dim, /*keepdim=*/true).sqrt();
  return m_Gss / norm.where(norm != 0, norm.new_ones({}));
}

void divide_by_sums(const torch::Tensor& m_Gss, int64_t dim) {
  const torch::Tensor sum = m_Gss.sum(dim, /*keepdim=*/true);
  m_Gss.div_(sum.where(sum != 0, sum.new_ones({})));
}

const Registration<PermutationMethod, SoftMethod<DoublyStochastic>> registered_learned_permutation{
    "learned", "trained while soft, then hard; one matrix per layer"};

}  // namespace

std::string DoublyStochastic::misfit(const Grouping& grouping) const {
  const auto& [size, groups, noun] = grouping;
  if (size % groups == 0 && size / groups >= 2) return "";
  std::vector<int64_t> valid = divisors(size);
  std::erase_if(valid, [size](int64_t number) { return size / number < 2; });
  return fmt::format("{} groups do not divide {} {} into groups of at least 2; numbers that do: {}",
                     groups, size, noun, fmt::join(valid, ", "));
}

void DoublyStochastic::fill(const torch::Tensor& m_Gss, double mix, const Stream& stream) const {
  const auto side = static_cast<double>(m_Gss.size(-1));
  fill_normal(m_Gss, stream);
  // A standard normal number has the mean magnitude sqrt(2 / pi).
  m_Gss.abs_().mul_((1.0 - mix) * std::sqrt(std::numbers::pi / 2.0) / side);
  m_Gss.add_(at::eye(m_Gss.size(-1), m_Gss.options()), mix);
  project(m_Gss);
}

torch::Tensor DoublyStochastic::product(const torch::Tensor& m_uGss, const torch::Tensor& x_uG,
                                        Factor factor) const {
  const torch::Tensor p_uGss = factor.is_transposed ? m_uGss.transpose(-1, -2) : m_uGss;
  return factor.is_left ? p_uGss.matmul(x_uG) : x_uG.matmul(p_uGss);
}

void DoublyStochastic::project(const torch::Tensor& m_uGss) const {
  m_uGss.clamp_min_(0);
  divide_by_sums(m_uGss, -2);
  divide_by_sums(m_uGss, -1);
}

torch::Tensor DoublyStochastic::penalty(const torch::Tensor& m_uGss) const {
  const torch::Tensor sizes = m_uGss.abs(), squares = m_uGss.square();
  const auto excess = [&](int64_t dim) {
    return (sizes.sum(dim) - squares.sum(dim).sqrt()).sum(-1);
  };
  return (excess(-1) + excess(-2)) / largest_penalty(m_uGss.size(-1));
}

torch::Tensor DoublyStochastic::penalty_gradient(const torch::Tensor& m_uGss) const {
  return (2.0 - divided_by_norm(m_uGss, -1) - divided_by_norm(m_uGss, -2)) /
         largest_penalty(m_uGss.size(-1));
}

torch::Tensor DoublyStochastic::index(const torch::Tensor& m_uGss) const {
  // Quantised: once entries are 0 many permutations have equal sums, and rounding of other entries
  // must not decide which is the nearest.
  constexpr double kSteps = 1 << 20;
  const torch::Tensor score_Nss =
      m_uGss.to(torch::kCPU, torch::kFloat64).mul(kSteps).round().flatten(0, 1);
  const torch::Tensor index_Ns =
      torch::empty({score_Nss.size(0), score_Nss.size(1)}, torch::kInt64);
  auto* out = index_Ns.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < score_Nss.size(0); ++i) {
    for (const int64_t column : best_assignment(score_Nss[i])) *out++ = column;
  }
  return index_Ns.view({m_uGss.size(0), m_uGss.size(1), m_uGss.size(2)}).to(m_uGss.device());
}

torch::Tensor DoublyStochastic::squared_distance(const torch::Tensor& m_uGss) const {
  const torch::Tensor wide_uGss = m_uGss.to(torch::kFloat64);
  const torch::Tensor identity_ss = at::eye(wide_uGss.size(-1), wide_uGss.options());
  return (wide_uGss - identity_ss).square().sum({1, 2, 3});
}

}  // namespace shoal
