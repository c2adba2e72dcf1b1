#include <ATen/Dispatch.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>

// S scope instances  U units
namespace shoal {
namespace {

/// Of a row, its mean and its squared variation.
struct Moments {
  double mean = 0, variation = 0;
};

template <class Real>
Moments moments_of(const Real* value_U, int64_t num_units, double least) {
  Moments row;
  for (int64_t u = 0; u < num_units; ++u) row.mean += std::max<double>(value_U[u], least);
  row.mean /= static_cast<double>(num_units);
  for (int64_t u = 0; u < num_units; ++u) {
    const double apart = std::max<double>(value_U[u], least) / row.mean - 1;
    row.variation += apart * apart;
  }
  row.variation /= static_cast<double>(num_units);
  return row;
}

torch::Tensor squared_variation_cpu(const torch::Tensor& value_SU, double least) {
  const int64_t num_units = value_SU.size(1);
  torch::Tensor variation_S = torch::empty({value_SU.size(0)}, value_SU.options());
  AT_DISPATCH_FLOATING_TYPES(value_SU.scalar_type(), "squared_variation", [&] {
    const scalar_t* value = value_SU.const_data_ptr<scalar_t>();
    scalar_t* variation = variation_S.data_ptr<scalar_t>();
    for (int64_t s = 0; s < value_SU.size(0); ++s, value += num_units) {
      variation[s] = static_cast<scalar_t>(moments_of(value, num_units, least).variation);
    }
  });
  return variation_S;
}

// 2 / (U m) (v / m - 1 - variation).
torch::Tensor squared_variation_backward_cpu(const torch::Tensor& grad_S,
                                             const torch::Tensor& value_SU, double least) {
  const int64_t num_units = value_SU.size(1);
  torch::Tensor grad_SU = torch::empty_like(value_SU);
  AT_DISPATCH_FLOATING_TYPES(value_SU.scalar_type(), "squared_variation_backward", [&] {
    const scalar_t* grad = grad_S.const_data_ptr<scalar_t>();
    const scalar_t* value = value_SU.const_data_ptr<scalar_t>();
    scalar_t* out = grad_SU.data_ptr<scalar_t>();
    for (int64_t s = 0; s < value_SU.size(0); ++s, value += num_units, out += num_units) {
      const Moments row = moments_of(value, num_units, least);
      const double scale = 2.0 * grad[s] / (static_cast<double>(num_units) * row.mean);
      for (int64_t u = 0; u < num_units; ++u) {
        const bool is_clamped = value[u] < least;
        out[u] = static_cast<scalar_t>(
            is_clamped ? 0.0 : scale * (value[u] / row.mean - 1 - row.variation));
      }
    }
  });
  return grad_SU;
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("squared_variation", squared_variation_cpu);
  m.impl("squared_variation_backward", squared_variation_backward_cpu);
}

}  // namespace shoal
