#include "sparse/permutations/doubly_stochastic.h"

#include <ATen/ops/eye.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "runtime/base/integers.h"
#include "sparse/permutations/assignment.h"
#include "sparse/permutations/soft_permutation.h"

namespace shoal {

std::string DoublyStochastic::misfit(const Grouping& grouping) const {
  const auto& [size, groups, noun] = grouping;
  if (size % groups == 0 && size / groups >= 2) return "";
  std::vector<int64_t> valid = divisors(size);
  std::erase_if(valid, [size](int64_t number) { return size / number < 2; });
  return fmt::format("{} groups do not divide {} {} into groups of at least 2; numbers that do: {}",
                     groups, size, noun, fmt::join(valid, ", "));
}

void DoublyStochastic::fill(const torch::Tensor& m_Gss, double mix, const Stream& stream) const {
  fill_soft_permutation(m_Gss, mix, stream);
}

torch::Tensor DoublyStochastic::product(const torch::Tensor& m_uGss, const torch::Tensor& x_uG,
                                        Factor factor) const {
  const torch::Tensor p_uGss = factor.is_transposed ? m_uGss.transpose(-1, -2) : m_uGss;
  return factor.is_left ? p_uGss.matmul(x_uG) : x_uG.matmul(p_uGss);
}

void DoublyStochastic::project(const torch::Tensor& m_uGss) const {
  project_soft_permutation(m_uGss);
}

torch::Tensor DoublyStochastic::penalty(const torch::Tensor& m_uGss) const {
  return soft_permutation_penalty(m_uGss);
}

torch::Tensor DoublyStochastic::penalty_gradient(const torch::Tensor& m_uGss) const {
  return soft_permutation_penalty_gradient(m_uGss);
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
