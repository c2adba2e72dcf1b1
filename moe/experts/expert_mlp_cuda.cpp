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

// The grouped product reads 16 bytes of bfloat16 at once, along the last two dimensions, and takes
// fewer than 1,024 experts.
constexpr int64_t kGroupedMultiple = 8;
constexpr int64_t kMostGroups = 1023;

/// True if these rows can go to LibTorch's grouped product, which needs no copy to the host.
bool has_grouped_product(const Tensor& rows, int64_t num_experts) {
  if (rows.scalar_type() != torch::kBFloat16 || num_experts > kMostGroups) return false;
  int device = 0, major = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major == 9 || major == 10;
}

bool reads_counts_cuda(const Tensor& rows, int64_t num_experts) {
  const c10::cuda::CUDAGuard guard(rows.device());
  return !has_grouped_product(rows, num_experts);
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

/// Neighbouring experts that share a product: each has `most` places for rows.
struct Batch {
  UnitRange experts{0, 0};
  int64_t first_place = 0, most = 0;

  int64_t num_places() const { return experts.count * most; }
  /// The batch's part of x_PD, [P, D] -> [experts, most, D].
  Tensor of(const Tensor& x_PD) const {
    return x_PD.narrow(0, first_place, num_places()).view({experts.count, most, x_PD.size(1)});
  }
};

/// Products of each expert's rows: LibTorch's grouped ones, or batches of products of as many rows.
class Groups {
 public:
  Groups(const Tensor& rows, const Tensor& weight_uDH, c10::IntArrayRef rows_u,
         const MaybeTensor& end_u)
      : end_u_(end_u ? *end_u : ends_of(rows_u, rows.device())),
        num_rows_(rows.size(0)),
        is_grouped_(has_grouped_product(rows, end_u_.size(0))) {
    check_count(num_rows_);
    if (is_grouped_) return;
    TORCH_CHECK(end_u_.size(0) == static_cast<int64_t>(rows_u.size()),
                "expert_mlp: ", rows_u.size(), " counts on the host for ", end_u_.size(0),
                " experts");
    make_batches(rows_u, weight_uDH.size(1) * weight_uDH.size(2));
    const int64_t num_rows = std::accumulate(rows_u.begin(), rows_u.end(), int64_t{0});
    if (num_places() != num_rows || num_rows != num_rows_) place_rows();
  }

  /// [R, D] -> [P, D], the rows as `times` and `outer` take them; zero in places without a row.
  Tensor in_places(const Tensor& x) const { return row_P_.defined() ? take_rows(x, row_P_) : x; }

  /// [P, D] times [u, D, H] -> [R, H].
  Tensor times(const Tensor& x_PD, const Tensor& weight) const {
    const int64_t width = weight.size(2);
    if (num_rows_ == 0) return torch::empty({0, width}, x_PD.options());
    if (is_grouped_) {
      return at::_grouped_mm(fitted(x_PD), fitted(weight), end_u_).narrow(1, 0, width).contiguous();
    }
    const Tensor y_PH = torch::empty({num_places(), width}, x_PD.options());
    for (const Batch& batch : batches_) {
      Tensor y = batch.of(y_PH);
      at::bmm_out(y, batch.of(x_PD), weight.narrow(0, batch.experts.first, batch.experts.count));
    }
    return place_R_.defined() ? take_rows(y_PH, place_R_) : y_PH;
  }

  /// The sum of x ⊗ y over each expert's rows, [P, D] and [P, H] -> [u, D, H]; zero without rows.
  Tensor outer(const Tensor& x_PD, const Tensor& y_PH) const {
    const int64_t num_experts = end_u_.size(0), D = x_PD.size(1), H = y_PH.size(1);
    if (num_rows_ == 0) return torch::zeros({num_experts, D, H}, x_PD.options());
    if (!is_grouped_) {
      Tensor sum = torch::empty({num_experts, D, H}, x_PD.options());
      for (const Batch& batch : batches_) {
        Tensor own = sum.narrow(0, batch.experts.first, batch.experts.count);
        at::bmm_out(own, batch.of(x_PD).transpose(1, 2), batch.of(y_PH));
      }
      return sum;
    }
    const Tensor sum = at::_grouped_mm(fitted(x_PD).t(), fitted(y_PH), end_u_)
                           .narrow(1, 0, D)
                           .narrow(2, 0, H)
                           .contiguous();
    for_real_type(sum, "expert_mlp", [&]<class Real, class Sum>(Real, Sum) {
      expert_mlp_cuda::launch_zero_unused(shape(y_PH), data<Real>(sum), D * H, current_stream());
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
                                               const_data_or_null<Sum>(weight_R),
                                               data<Sum>(partial), data<Real>(sum_uH)};
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
  static void check_count(int64_t rows) {
    TORCH_CHECK(rows <= INT32_MAX, "expert_mlp: ", rows,
                " rows on a GPU, fewer than 2^31; raise train.accumulate");
  }

  /// Joins neighbouring experts while places without a row cost less than a further call: 2^27
  /// multiply-adds take an H100 about as long.
  void make_batches(c10::IntArrayRef rows_u, int64_t work_per_row) {
    const int64_t padding = std::min<int64_t>(256, (int64_t{1} << 27) / (work_per_row + 1));
    for (const int64_t rows : rows_u) {
      const Batch& last = batches_.back();
      const int64_t most = std::max(last.most, rows), count = last.experts.count;
      if ((count + 1) * most > last.num_places() + rows + padding) {
        batches_.push_back({{last.experts.first + count, 0}, num_places(), 0});
      }
      Batch& batch = batches_.back();
      ++batch.experts.count;
      batch.most = std::max(batch.most, rows);
    }
  }

  int64_t num_places() const { return batches_.back().first_place + batches_.back().num_places(); }

  /// Sets which row is in which place. Trailing padding rows have none.
  void place_rows() {
    check_count(num_places());
    std::vector<int64_t> places_u;
    for (const Batch& batch : batches_) {
      places_u.insert(places_u.end(), static_cast<size_t>(batch.experts.count), batch.most);
    }
    const Tensor place_end_u = ends_of(places_u, end_u_.device());
    row_P_ = torch::empty({num_places()}, end_u_.options().dtype(torch::kInt64));
    place_R_ = torch::full({num_rows_}, -1, row_P_.options());
    expert_mlp_cuda::launch_places(
        {place_end_u.const_data_ptr<int32_t>(), static_cast<int>(places_u.size()), num_places(), 0},
        {end_u_.const_data_ptr<int32_t>(), row_P_.data_ptr<int64_t>(),
         place_R_.data_ptr<int64_t>()},
        current_stream());
  }

  Tensor end_u_;
  int64_t num_rows_;
  bool is_grouped_;
  std::vector<Batch> batches_{Batch{}};
  Tensor row_P_, place_R_;  ///< row of each place, -1 without one; its inverse. Undefined: identity
};

std::tuple<Tensor, Tensor, Tensor> mlp_forward_cuda(const Tensor& rows,
                                                    const MaybeTensor& row_weight,
                                                    at::TensorList list, c10::IntArrayRef rows_u,
                                                    const MaybeTensor& end_u, int64_t activation,
                                                    bool keep) {
  const c10::cuda::CUDAGuard guard(rows.device());
  const auto weights = ExpertWeights::of_list(list);
  const Groups groups(rows, weights.fc1_weight, rows_u, end_u);
  Tensor rows_PD = groups.in_places(rows);
  Tensor pre = groups.times(rows_PD, weights.fc1_weight);
  Tensor gate =
      weights.gate_weight.defined() ? groups.times(rows_PD, weights.gate_weight) : Tensor();
  rows_PD.reset();
  Tensor hidden = torch::empty_like(pre);
  Tensor y;
  for_real_type(rows, "expert_mlp", [&]<class Real, class Sum>(Real, Sum) {
    const expert_mlp_cuda::Activate<Real> job{data<Real>(pre),
                                              const_data_or_null<Real>(weights.fc1_bias),
                                              data_or_null<Real>(gate),
                                              const_data_or_null<Real>(weights.gate_bias),
                                              const_data_or_null<Sum>(row_weight),
                                              data<Real>(hidden)};
    expert_mlp_cuda::launch_activate(groups.shape(pre), static_cast<Activation>(activation), job,
                                     current_stream());
    y = groups.times(groups.in_places(hidden), weights.fc2_weight);
    if (!weights.fc2_bias.defined()) return;
    const expert_mlp_cuda::AddBias<Real> add{const_data<Real>(weights.fc2_bias),
                                             const_data_or_null<Sum>(row_weight), data<Real>(y)};
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
  Tensor grad_PD = groups.in_places(grad);
  // Of the weighted hidden values; overwritten by that of `pre`.
  const Tensor pre_grad = groups.times(grad_PD, weights.fc2_weight.transpose(1, 2));
  const Tensor gate_grad = gate.defined() ? torch::empty_like(pre_grad) : Tensor();
  Tensor hidden = torch::empty_like(pre_grad);  // as in the forward pass
  // Zero for trailing padding rows.
  const Tensor row_weight_grad = row_weight.defined() ? torch::zeros_like(row_weight) : Tensor();
  for_real_type(grad, "expert_mlp", [&]<class Real, class Sum>(Real, Sum) {
    const expert_mlp_cuda::ActivateBackward<Real> job{data<Real>(pre_grad),
                                                      const_data<Real>(pre),
                                                      const_data_or_null<Real>(gate),
                                                      const_data_or_null<Sum>(row_weight),
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
  grads.fc2_weight = groups.outer(groups.in_places(hidden), grad_PD);
  if (has_bias) grads.fc2_bias = groups.sum_rows(grad, optional_of(row_weight));
  hidden.reset();
  grad_PD.reset();
  const Tensor rows_PD = groups.in_places(rows);
  Tensor own_grad_PH = groups.in_places(pre_grad);  // then the gate's
  grads.fc1_weight = groups.outer(rows_PD, own_grad_PH);
  if (has_bias) grads.fc1_bias = groups.sum_rows(pre_grad);
  Tensor rows_grad;
  if (needs_rows_grad) rows_grad = groups.times(own_grad_PH, weights.fc1_weight.transpose(1, 2));
  if (gate.defined()) {
    own_grad_PH = groups.in_places(gate_grad);
    grads.gate_weight = groups.outer(rows_PD, own_grad_PH);
    if (has_bias) grads.gate_bias = groups.sum_rows(gate_grad);
    if (needs_rows_grad) {
      rows_grad.add_(groups.times(own_grad_PH, weights.gate_weight.transpose(1, 2)));
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
