#include "moe/experts/expert_mlp_cuda.h"

#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

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

// The grouped product reads 16 bytes of bfloat16 at once, along the last two dimensions, and takes
// fewer than 1,024 experts.
constexpr int64_t kGroupedMultiple = 8;
constexpr int64_t kMostGroups = 1023;

bool reads_counts_cuda(const Tensor& rows, const Tensor& fc1_weight, const Tensor& /*fc2_weight*/) {
  const c10::cuda::CUDAGuard guard(rows.device());
  return rows.scalar_type() != torch::kBFloat16 || !has_grouped_product() ||
         fc1_weight.size(0) > kMostGroups;
}

/// The tensor, or a copy with zeros up to the next multiple of kGroupedMultiple in its last
/// dimension and, of weights, in the one before.
Tensor fitted(const Tensor& tensor) {
  const auto missing = [&](int64_t dim) {
    return (kGroupedMultiple - tensor.size(dim) % kGroupedMultiple) % kGroupedMultiple;
  };
  const int64_t columns = missing(-1), rows = tensor.dim() == 3 ? missing(1) : 0;
  if (columns > 0 || rows > 0) return at::constant_pad_nd(tensor, {0, columns, 0, rows});
  const auto place = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  return place % 16 == 0 ? tensor : tensor.clone();
}

/// Neighbouring experts of one product, and their rows.
struct Batch {
  UnitRange experts{0, 0};
  int64_t first_row = 0, num_rows = 0;
  int64_t most = 0;  ///< most rows of an expert, to which all are filled up if LibTorch groups none
  Tensor row_P = {}, place_R = {};  ///< row of each place filled, -1 without one; its inverse
};

/// Products of each expert's rows.
class Groups {
 public:
  Groups(const Tensor& rows, const Tensor& weight_uDH, c10::IntArrayRef rows_u,
         const MaybeTensor& end_u)
      : end_u_(end_u ? *end_u : ends_of(rows_u, rows.device())),
        is_grouped_(rows.scalar_type() == torch::kBFloat16 && has_grouped_product()) {
    TORCH_CHECK(rows.size(0) <= INT32_MAX, "expert_mlp: ", rows.size(0), " rows on a GPU");
    if (is_grouped_ && end_u_.size(0) <= kMostGroups) {
      batches_.push_back({{0, end_u_.size(0)}, 0, rows.size(0)});
      return;
    }
    TORCH_CHECK(end_u_.size(0) == static_cast<int64_t>(rows_u.size()),
                "expert_mlp: ", rows_u.size(), " counts on the host for ", end_u_.size(0),
                " experts");
    make_batches(rows_u, weight_uDH.size(1) * weight_uDH.size(2));
    if (is_grouped_) return;
    for (Batch& batch : batches_) fill_up(batch);
  }

  /// [R, D] times [u, D, H] -> [R, H].
  Tensor times(const Tensor& x, const Tensor& weight) const {
    std::vector<Tensor> parts;
    int64_t num_rows = 0;
    for (const Batch& batch : batches_) {
      if (batch.num_rows == 0) continue;
      const Tensor own = weight.narrow(0, batch.experts.first, batch.experts.count);
      parts.push_back(is_grouped_
                          ? at::_grouped_mm(fitted(rows_of(batch, x)), fitted(own), ends_in(batch))
                                .narrow(1, 0, weight.size(2))
                          : taken(batch, at::bmm(filled(batch, x), own)));
      num_rows += batch.num_rows;
    }
    if (num_rows < x.size(0)) {
      parts.push_back(torch::empty({x.size(0) - num_rows, weight.size(2)}, x.options()));
    }
    if (parts.empty()) return torch::empty({0, weight.size(2)}, x.options());
    return parts.size() == 1 ? parts.front().contiguous() : torch::cat(parts);
  }

  /// The sum of x ⊗ y over each expert's rows, [R, D] and [R, H] -> [u, D, H]; zero without rows.
  Tensor outer(const Tensor& x, const Tensor& y) const {
    const int64_t num_experts = end_u_.size(0);
    if (x.size(0) == 0) return torch::zeros({num_experts, x.size(1), y.size(1)}, x.options());
    std::vector<Tensor> parts;
    for (const Batch& batch : batches_) {
      if (batch.num_rows == 0) {
        parts.push_back(torch::zeros({batch.experts.count, x.size(1), y.size(1)}, x.options()));
      } else if (is_grouped_) {
        parts.push_back(at::_grouped_mm(fitted(rows_of(batch, x)).t(), fitted(rows_of(batch, y)),
                                        ends_in(batch))
                            .narrow(1, 0, x.size(1))
                            .narrow(2, 0, y.size(1)));
      } else {
        parts.push_back(at::bmm(filled(batch, x).transpose(1, 2), filled(batch, y)));
      }
    }
    const Tensor sum = parts.size() == 1 ? parts.front().contiguous() : torch::cat(parts);
    if (!is_grouped_) return sum;
    for_real_type(sum, "expert_mlp", [&]<class Real, class Sum>(Real, Sum) {
      expert_mlp_cuda::launch_zero_unused(shape(y), data<Real>(sum), x.size(1) * y.size(1),
                                          current_stream());
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
  /// Joins neighbouring experts to as many as a grouped product takes. Without one, while rows that
  /// fill up cost less than a further call: 2^27 multiply-adds take an H100 about as long.
  void make_batches(c10::IntArrayRef rows_u, int64_t work_per_row) {
    const int64_t padding = std::min<int64_t>(256, (int64_t{1} << 27) / (work_per_row + 1));
    const auto joins = [&](const Batch& batch, int64_t rows) {
      const int64_t count = batch.experts.count;
      return is_grouped_
                 ? count < kMostGroups
                 : (count + 1) * std::max(batch.most, rows) <= count * batch.most + rows + padding;
    };
    for (size_t expert = 0; expert < rows_u.size(); ++expert) {
      if (batches_.empty() || !joins(batches_.back(), rows_u[expert])) {
        const int64_t first_row =
            batches_.empty() ? 0 : batches_.back().first_row + batches_.back().num_rows;
        batches_.push_back({{static_cast<int64_t>(expert), 0}, first_row});
      }
      Batch& batch = batches_.back();
      ++batch.experts.count;
      batch.num_rows += rows_u[expert];
      batch.most = std::max(batch.most, rows_u[expert]);
    }
  }

  Tensor ends_in(const Batch& batch) const {
    const Tensor end_b = end_u_.narrow(0, batch.experts.first, batch.experts.count);
    return batch.first_row == 0 ? end_b : end_b - batch.first_row;
  }

  static Tensor rows_of(const Batch& batch, const Tensor& x) {
    return x.narrow(0, batch.first_row, batch.num_rows);
  }

  void fill_up(Batch& batch) const {
    const int64_t num_places = batch.experts.count * batch.most;
    if (num_places == batch.num_rows) return;
    batch.row_P = torch::empty({num_places}, end_u_.options().dtype(torch::kInt64));
    batch.place_R = torch::empty({batch.num_rows}, batch.row_P.options());
    expert_mlp_cuda::launch_places(
        {end_u_.const_data_ptr<int32_t>(), 0, 0, 0},
        {static_cast<int>(batch.experts.first), static_cast<int>(batch.experts.count), batch.most,
         batch.first_row, batch.row_P.data_ptr<int64_t>(), batch.place_R.data_ptr<int64_t>()},
        current_stream());
  }

  /// [R, D] -> [experts, most, D].
  static Tensor filled(const Batch& batch, const Tensor& x) {
    const Tensor own = rows_of(batch, x);
    return (batch.row_P.defined() ? take_rows(own, batch.row_P) : own)
        .view({batch.experts.count, batch.most, x.size(1)});
  }

  /// Inverts filled, for the batch's rows.
  static Tensor taken(const Batch& batch, const Tensor& y) {
    const Tensor places = y.flatten(0, 1);
    return batch.place_R.defined() ? take_rows(places, batch.place_R) : places;
  }

  Tensor end_u_;
  bool is_grouped_;
  std::vector<Batch> batches_;
};

std::tuple<Tensor, Tensor, Tensor> mlp_forward_cuda(const Tensor& rows,
                                                    const MaybeTensor& row_weight,
                                                    at::TensorList list, c10::IntArrayRef rows_u,
                                                    const MaybeTensor& end_u, int64_t activation,
                                                    bool keep) {
  const c10::cuda::CUDAGuard guard(rows.device());
  const auto weights = ExpertWeights::of_list(list);
  const Groups groups(rows, weights.fc1_weight, rows_u, end_u);
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
  const Groups groups(rows, weights.fc1_weight, rows_u, end_u);
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
