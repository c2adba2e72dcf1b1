#pragma once

#include <torch/types.h>

#include <optional>

#include "runtime/device/bfloat16.h"

namespace shoal {

/// An optional tensor argument of an operator of this project.
using MaybeTensor = std::optional<torch::Tensor>;

/// Calls `body(Real{}, Sum{})` with the C++ types of the tensor's values and their sums: (float,
/// float), (double, double), (Bfloat16, float). Other dtypes throw TORCH_CHECK, naming `what`.
template <class Body>
void for_real_type(const torch::Tensor& tensor, const char* what, Body&& body) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return body(float{}, float{});
    case at::kDouble:
      return body(double{}, double{});
    case at::kBFloat16:
      return body(Bfloat16{}, float{});
    default:
      TORCH_CHECK(false, what, ": expected float32, float64 or bfloat16, got ",
                  tensor.scalar_type());
  }
}

template <class Real>
const Real* const_data(const torch::Tensor& tensor) {
  return static_cast<const Real*>(tensor.const_data_ptr());
}

template <class Real>
const Real* const_data_or_null(const torch::Tensor& tensor) {
  return tensor.defined() ? const_data<Real>(tensor) : nullptr;
}
template <class Real>
const Real* const_data_or_null(const MaybeTensor& tensor) {
  return tensor ? const_data<Real>(*tensor) : nullptr;
}

template <class Real>
Real* data(const torch::Tensor& tensor) {
  return static_cast<Real*>(tensor.mutable_data_ptr());
}

template <class Real>
Real* data_or_null(const torch::Tensor& tensor) {
  return tensor.defined() ? data<Real>(tensor) : nullptr;
}

/// Dtype for sums of `dtype` values and factors that scale them: float64 for float64, else float32.
inline torch::Dtype wide_dtype(torch::Dtype dtype) {
  return dtype == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}
inline torch::Dtype wide_dtype(const torch::TensorOptions& options) {
  return wide_dtype(torch::typeMetaToScalarType(options.dtype()));
}

/// Returns x, converted to float32 if it is bfloat16.
inline torch::Tensor at_least_float32(const torch::Tensor& x) {
  return x.scalar_type() == torch::kBFloat16 ? x.to(torch::kFloat32) : x;
}

}  // namespace shoal
