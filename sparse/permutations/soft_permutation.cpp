#include "sparse/permutations/soft_permutation.h"

#include <ATen/ops/eye.h>

#include <cmath>
#include <numbers>

#include "runtime/random/random.h"

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

}  // namespace

void fill_soft_permutation(const torch::Tensor& out_ss, double mix, const Stream& stream) {
  const auto side = static_cast<double>(out_ss.size(-1));
  fill_normal(out_ss, stream);
  // A standard normal number has the mean magnitude sqrt(2 / pi).
  out_ss.abs_().mul_((1.0 - mix) * std::sqrt(std::numbers::pi / 2.0) / side);
  out_ss.add_(at::eye(out_ss.size(-1), out_ss.options()), mix);
  project_soft_permutation(out_ss);
}

void project_soft_permutation(const torch::Tensor& m_Gss) {
  m_Gss.clamp_min_(0);
  divide_by_sums(m_Gss, -2);
  divide_by_sums(m_Gss, -1);
}

torch::Tensor soft_permutation_penalty(const torch::Tensor& m_Gss) {
  const torch::Tensor sizes = m_Gss.abs(), squares = m_Gss.square();
  const auto excess = [&](int64_t dim) {
    return (sizes.sum(dim) - squares.sum(dim).sqrt()).sum(-1);
  };
  return (excess(-1) + excess(-2)) / largest_penalty(m_Gss.size(-1));
}

torch::Tensor soft_permutation_penalty_gradient(const torch::Tensor& m_Gss) {
  return (2.0 - divided_by_norm(m_Gss, -1) - divided_by_norm(m_Gss, -2)) /
         largest_penalty(m_Gss.size(-1));
}

}  // namespace shoal
