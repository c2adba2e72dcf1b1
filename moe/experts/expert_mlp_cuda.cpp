#include "moe/experts/expert_mlp_cuda.h"

#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/mm.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <torch/library.h>

#include <numeric>
#include <optional>
#include <utility>

#include "moe/experts/expert_mlp.h"
#include "runtime/device/current_stream_cuda.h"
#include "runtime/device/operator.h"
#include "runtime/device/real_types.h"

// R rows  D width in  H hidden width  O width out  u experts
namespace shoal {
namespace {

using torch::Tensor;
using MaybeTensor = std::optional<Tensor>;

/// Whether the current device has LibTorch's grouped product, which needs no copy to the host.
bool has_grouped_product() {
  int device = 0, major = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major == 9 || major == 10;
}

// The grouped product reads 16 bytes of bfloat16 at once, along the last two dimensions.
constexpr int64_t kGroupedMultiple = 8;

bool reads_counts_cuda(const Tensor& rows, const Tensor& fc1_weight, const Tensor& fc2_weight) {
  const c10::cuda::CUDAGuard guard(rows.device());
  const auto fits = [](int64_t width) { return width % kGroupedMultiple == 0; };
  return rows.scalar_type() != torch::kBFloat16 || !has_grouped_product() ||
         !fits(fc1_weight.size(1)) || !fits(fc1_weight.size(2)) || !fits(fc2_weight.size(2));
}

/// Products of each expert's rows.
class Groups {
 public:
  Groups(const Tensor& rows, c10::IntArrayRef rows_u, const MaybeTensor& end_u)
      : end_u_(end_u ? *end_u : ends_of(rows_u, rows.device())),
        rows_u_(rows_u.vec()),
        is_grouped_(rows.scalar_type() == torch::kBFloat16 && has_grouped_product()) {
    TORCH_CHECK(rows.size(0) <= INT32_MAX, "expert_mlp: ", rows.size(0), " rows on a GPU");
  }

  /// [R, D] times [u, D, H] -> [R, H].
  Tensor times(const Tensor& x, const Tensor& weight) const {
    if (x.size(0) == 0) return torch::empty({0, weight.size(2)}, x.options());
    if (fits(x) && fits(weight)) return at::_grouped_mm(x, weight, end_u_);
    Tensor y = torch::empty({x.size(0), weight.size(2)}, x.options());
    for_each([&](int64_t expert, int64_t first, int64_t count) {
      Tensor y_e = y.narrow(0, first, count);
      at::mm_out(y_e, x.narrow(0, first, count), weight.select(0, expert));
    });
    return y;
  }

  /// The sum of x ⊗ y over each expert's rows, [R, D] and [R, H] -> [u, D, H]; zero without rows.
  Tensor outer(const Tensor& x, const Tensor& y) const {
    const int64_t num_experts = end_u_.size(0);
    if (x.size(0) == 0) return torch::zeros({num_experts, x.size(1), y.size(1)}, x.options());
    if (fits(x) && fits(y)) {
      Tensor sum = at::_grouped_mm(x.t(), y, end_u_).contiguous();
      for_real_type(sum, "expert_mlp", [&]<class Real, class Sum>(Real, Sum) {
        expert_mlp_cuda::launch_zero_unused(shape(y), data<Real>(sum), x.size(1) * y.size(1),
                                            current_stream());
      });
      return sum;
    }
    Tensor sum = torch::zeros({num_experts, x.size(1), y.size(1)}, x.options());
    for_each([&](int64_t expert, int64_t first, int64_t count) {
      Tensor sum_e = sum.select(0, expert);
      at::mm_out(sum_e, x.narrow(0, first, count).t(), y.narrow(0, first, count));
    });
    return sum;
  }

  /// Sums of each expert's rows, [R, H] -> [u, H], each times its weight if there are such.
  Tensor sum_rows(const Tensor& rows_RH, const MaybeTensor& weight_R = std::nullopt) const {
    const int64_t num_experts = end_u_.size(0), width = rows_RH.size(1);
    Tensor sum_uH = torch::empty({num_experts, width}, rows_RH.options());
    for_real_type(rows_RH, "expert_mlp", [&]<class Real, class Sum>(Real, Sum) {
      Tensor partial = torch::empty({num_experts, expert_mlp_cuda::kSumParts, width},
                                    rows_RH.options().dtype(c10::CppTypeToScalarType<Sum>::value));
      const expert_mlp_cuda::SumRows<Real> job{const_data<Real>(rows_RH),
                                               data_or_null<Sum>(weight_R), data<Sum>(partial),
                                               data<Real>(sum_uH)};
      expert_mlp_cuda::launch_sum_rows(shape(rows_RH), job, current_stream());
    });
    return sum_uH;
  }

  /// Shape for rows of the experts, [R, H].
  expert_mlp_cuda::Shape shape(const Tensor& rows) const {
    return {end_u_.const_data_ptr<int32_t>(), static_cast<int>(end_u_.size(0)), rows.size(0),
            rows.size(1)};
  }

 private:
  bool fits(const Tensor& tensor) const {
    const auto place = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    bool fits = is_grouped_ && place % 16 == 0 && tensor.size(-1) % kGroupedMultiple == 0;
    if (tensor.dim() == 3) fits = fits && tensor.size(1) % kGroupedMultiple == 0;
    return fits;
  }

  template <class Body>
  void for_each(const Body& body) const {
    if (rows_u_.empty() && end_u_.size(0) > 0) {
      const Tensor end = end_u_.cpu();
      const int32_t* begin = end.const_data_ptr<int32_t>();
      rows_u_.assign(begin, begin + end.size(0));
      std::adjacent_difference(rows_u_.begin(), rows_u_.end(), rows_u_.begin());
    }
    int64_t first = 0;
    for (size_t expert = 0; expert < rows_u_.size(); ++expert) {
      if (rows_u_[expert] > 0) body(static_cast<int64_t>(expert), first, rows_u_[expert]);
      first += rows_u_[expert];
    }
  }

  Tensor end_u_;
  // Where only the GPU has them, empty until a tensor that is not aligned needs them.
  mutable std::vector<int64_t> rows_u_;
  bool is_grouped_;
};

std::tuple<Tensor, Tensor, Tensor> mlp_forward_cuda(const Tensor& rows,
                                                    const MaybeTensor& row_weight,
                                                    at::TensorList list, c10::IntArrayRef rows_u,
                                                    const MaybeTensor& end_u, int64_t activation,
                                                    bool keep) {
  const c10::cuda::CUDAGuard guard(rows.device());
  const auto weights = ExpertWeights::of_list(list);
  const Groups groups(rows, rows_u, end_u);
  Tensor pre = groups.times(rows, weights.fc1_weight);
  Tensor gate = weights.gate_weight.defined() ? groups.times(rows, weights.gate_weight) : Tensor();
  Tensor hidden = torch::empty_like(pre);
  Tensor y;
  for_real_type(rows, "expert_mlp", [&]<class Real, class Sum>(Real, Sum) {
    const expert_mlp_cuda::Activate<Real> job{data<Real>(pre),
                                              data_or_null<Real>(weights.fc1_bias),
                                              data_or_null<Real>(gate),
                                              data_or_null<Real>(weights.gate_bias),
                                              data_or_null<Sum>(row_weight),
                                              data<Real>(hidden)};
    expert_mlp_cuda::launch_activate(groups.shape(pre), static_cast<Activation>(activation), job,
                                     current_stream());
    y = groups.times(hidden, weights.fc2_weight);
    if (!weights.fc2_bias.defined()) return;
    const expert_mlp_cuda::AddBias<Real> add{const_data<Real>(weights.fc2_bias),
                                             data_or_null<Sum>(row_weight), data<Real>(y)};
    expert_mlp_cuda::launch_add_bias(groups.shape(y), add, current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {y, keep ? pre : Tensor(), keep ? gate : Tensor()};
}

std::tuple<Tensor, Tensor, std::vector<Tensor>> mlp_backward_cuda(
    const Tensor& grad, at::TensorList saved, at::TensorList list, at::TensorList into,
    c10::IntArrayRef rows_u, const MaybeTensor& end_u, int64_t activation, bool needs_rows_grad) {
  const c10::cuda::CUDAGuard guard(grad.device());
  const Tensor &rows = saved[0], &pre = saved[1], &gate = saved[2], &row_weight = saved[3];
  const auto weights = ExpertWeights::of_list(list);
  const bool has_bias = weights.fc2_bias.defined();
  const Groups groups(rows, rows_u, end_u);
  // Of the weighted hidden values; overwritten by that of `pre`.
  const Tensor pre_grad = groups.times(grad, weights.fc2_weight.transpose(1, 2));
  const Tensor gate_grad = gate.defined() ? torch::empty_like(pre_grad) : Tensor();
  Tensor hidden = torch::empty_like(pre_grad);  // as in the forward pass
  // Zero for trailing padding rows.
  const Tensor row_weight_grad = row_weight.defined() ? torch::zeros_like(row_weight) : Tensor();
  for_real_type(grad, "expert_mlp", [&]<class Real, class Sum>(Real, Sum) {
    const expert_mlp_cuda::ActivateBackward<Real> job{data<Real>(pre_grad),
                                                      const_data<Real>(pre),
                                                      data_or_null<Real>(gate),
                                                      data_or_null<Sum>(row_weight),
                                                      data<Real>(hidden),
                                                      data<Real>(pre_grad),
                                                      data_or_null<Real>(gate_grad),
                                                      data_or_null<Sum>(row_weight_grad)};
    expert_mlp_cuda::launch_activate_backward(
        groups.shape(pre_grad), static_cast<Activation>(activation), job, current_stream());
    if (!row_weight.defined() || !has_bias) return;
    const expert_mlp_cuda::BiasDot<Real> dot{
        const_data<Real>(grad), const_data<Real>(weights.fc2_bias), data<Sum>(row_weight_grad)};
    expert_mlp_cuda::launch_bias_dot(groups.shape(grad), dot, current_stream());
  });
  ExpertWeights grads;
  grads.fc2_weight = groups.outer(hidden, grad);
  if (has_bias) grads.fc2_bias = groups.sum_rows(grad, optional_of(row_weight));
  hidden.reset();
  grads.fc1_weight = groups.outer(rows, pre_grad);
  if (has_bias) grads.fc1_bias = groups.sum_rows(pre_grad);
  Tensor rows_grad;
  if (needs_rows_grad) rows_grad = groups.times(pre_grad, weights.fc1_weight.transpose(1, 2));
  if (gate.defined()) {
    grads.gate_weight = groups.outer(rows, gate_grad);
    if (has_bias) grads.gate_bias = groups.sum_rows(gate_grad);
    if (needs_rows_grad) {
      rows_grad.add_(groups.times(gate_grad, weights.gate_weight.transpose(1, 2)));
    }
  }
  for (size_t i = 0; i < into.size(); ++i) {
    Tensor& gradient = grads.*ExpertWeights::members()[i];
    if (into[i].defined()) into[i].copy_(std::exchange(gradient, Tensor()));
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {rows_grad, row_weight_grad, grads.to_list()};
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("expert_mlp_reads_counts", reads_counts_cuda);
  m.impl("expert_mlp_forward", mlp_forward_cuda);
  m.impl("expert_mlp_backward", mlp_backward_cuda);
}

}  // namespace shoal
