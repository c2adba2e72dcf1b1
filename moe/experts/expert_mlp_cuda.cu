#include <cuda_runtime.h>

#include "moe/experts/expert_mlp_cuda.h"
#include "runtime/kernels/activation_kernels.cuh"
#include "runtime/kernels/row_kernels.cuh"

// R rows  H width  u experts
namespace shoal::expert_mlp_cuda {
namespace {

using device::kThreads;
using device::Pack;
using device::RowLaunch;
using device::Sum;

/// The first expert that ends after the row; num_experts if none does.
__device__ int expert_of(const Shape& shape, int64_t row) {
  int low = 0, high = shape.num_experts;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (shape.end_u[middle] > row) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/// Calls `body(pack of row, pack of expert's row)` for this lane's packs; false for padding rows.
template <class Body>
__device__ bool for_own_packs(const Shape& shape, int64_t packs, const Body& body) {
  const int64_t row = device::own_row();
  if (row >= shape.num_rows) return false;
  const int expert = expert_of(shape, row);
  if (expert == shape.num_experts) return false;
  for (int64_t c = threadIdx.x; c < packs; c += blockDim.x) {
    body(row * packs + c, expert * packs + c);
  }
  return true;
}

/// Weight of this lane's row; 1 if rows have none.
template <class Value>
__device__ Value weight_of_row(const Shape& shape, const Value* weight_R) {
  const int64_t row = device::own_row();
  return weight_R == nullptr || row >= shape.num_rows ? Value(1) : weight_R[row];
}

template <int kPack, class Real>
__device__ Pack<Real, kPack> load(const Real* from, int64_t pack) {
  return reinterpret_cast<const Pack<Real, kPack>*>(from)[pack];
}

template <int kPack, class Real>
__device__ void store(Real* to, int64_t pack, const Pack<Real, kPack>& values) {
  reinterpret_cast<Pack<Real, kPack>*>(to)[pack] = values;
}

/// Adds the weighted bias, if there is one; rounds to Real as what is stored.
template <int kPack, class Real>
__device__ void add_bias(Pack<Real, kPack>& values, const Real* bias_uH, int64_t pack,
                         Sum<Real> weight = 1) {
  if (bias_uH == nullptr) return;
  const auto bias = load<kPack>(bias_uH, pack);
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    values.value[i] = device::narrow<Real>(device::widen(values.value[i]) +
                                           weight * device::widen(bias.value[i]));
  }
}

template <int kPack, class Real>
__global__ void add_bias_kernel(Shape shape, AddBias<Real> job, int64_t packs) {
  const Sum<Real> weight = weight_of_row(shape, job.weight_R);
  for_own_packs(shape, packs, [&](int64_t at, int64_t of_expert) {
    auto values = load<kPack>(job.rows_RH, at);
    add_bias(values, job.bias_uH, of_expert, weight);
    store<kPack>(job.rows_RH, at, values);
  });
}

template <Activation kActivation, int kPack, class Real>
__global__ void activate_kernel(Shape shape, Activate<Real> job, int64_t packs) {
  const Sum<Real> weight = weight_of_row(shape, job.weight_R);
  for_own_packs(shape, packs, [&](int64_t at, int64_t of_expert) {
    auto pre = load<kPack>(job.pre_RH, at);
    add_bias(pre, job.bias_uH, of_expert);
    if (job.bias_uH != nullptr) store<kPack>(job.pre_RH, at, pre);
    Pack<Real, kPack> gate = {}, hidden;
    if (job.gate_RH != nullptr) {
      gate = load<kPack>(job.gate_RH, at);
      add_bias(gate, job.gate_bias_uH, of_expert);
      if (job.gate_bias_uH != nullptr) store<kPack>(job.gate_RH, at, gate);
    }
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const Sum<Real> x = device::widen(pre.value[i]);
      const Sum<Real> value =
          job.gate_RH == nullptr
              ? device::activate<kActivation>(x).value
              : device::activate<kActivation>(device::widen(gate.value[i])).value * x;
      hidden.value[i] = device::narrow<Real>(weight * value);
    }
    store<kPack>(job.hidden_RH, at, hidden);
  });
}

template <Activation kActivation, int kPack, class Real>
__global__ void activate_backward_kernel(Shape shape, ActivateBackward<Real> job, int64_t packs) {
  const Sum<Real> weight = weight_of_row(shape, job.weight_R);
  Sum<Real> dot = 0;
  const bool is_used = for_own_packs(shape, packs, [&](int64_t at, int64_t) {
    const auto grads = load<kPack>(job.hidden_grad_RH, at), pre = load<kPack>(job.pre_RH, at);
    Pack<Real, kPack> gate = {}, hidden, pre_grad, gate_grad = {};
    if (job.gate_RH != nullptr) gate = load<kPack>(job.gate_RH, at);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const Sum<Real> grad = device::widen(grads.value[i]), x = device::widen(pre.value[i]);
      const Sum<Real> weighted = weight * grad;
      Sum<Real> value;
      if (job.gate_RH == nullptr) {
        const auto active = device::activate<kActivation>(x);
        value = active.value;
        pre_grad.value[i] = device::narrow<Real>(weighted * active.derivative);
      } else {
        const auto active = device::activate<kActivation>(device::widen(gate.value[i]));
        value = active.value * x;
        pre_grad.value[i] = device::narrow<Real>(weighted * active.value);
        gate_grad.value[i] = device::narrow<Real>(weighted * (active.derivative * x));
      }
      hidden.value[i] = device::narrow<Real>(weight * value);
      dot += grad * value;
    }
    store<kPack>(job.hidden_RH, at, hidden);
    store<kPack>(job.pre_grad_RH, at, pre_grad);
    if (job.gate_RH != nullptr) store<kPack>(job.gate_grad_RH, at, gate_grad);
  });
  if (job.weight_grad_R == nullptr) return;
  dot = device::sum_lanes(dot);
  if (is_used && threadIdx.x == 0) job.weight_grad_R[device::own_row()] = dot;
}

template <int kPack, class Real>
__global__ void bias_dot_kernel(Shape shape, BiasDot<Real> job, int64_t packs) {
  Sum<Real> dot = 0;
  const bool is_used = for_own_packs(shape, packs, [&](int64_t at, int64_t of_expert) {
    const auto grad = load<kPack>(job.grad_RH, at), bias = load<kPack>(job.bias_uH, of_expert);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      dot += device::widen(grad.value[i]) * device::widen(bias.value[i]);
    }
  });
  dot = device::sum_lanes(dot);
  if (is_used && threadIdx.x == 0) job.weight_grad_R[device::own_row()] += dot;
}

struct RowRange {
  int64_t first, last;
};

__device__ RowRange rows_of(const Shape& shape, int expert) {
  return {expert == 0 ? 0 : int64_t{shape.end_u[expert - 1]}, int64_t{shape.end_u[expert]}};
}

// Each thread sums a column of one of the parts of an expert's rows.
template <class Real>
__global__ void sum_parts_kernel(Shape shape, SumRows<Real> job) {
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int expert = static_cast<int>(blockIdx.z), part = static_cast<int>(blockIdx.y);
  if (column >= shape.width) return;
  const RowRange rows = rows_of(shape, expert);
  const int64_t count = rows.last - rows.first;
  const int64_t first = rows.first + count * part / kSumParts;
  const int64_t last = rows.first + count * (part + 1) / kSumParts;
  const auto value_of = [&](int64_t row) {
    const Sum<Real> value = device::widen(job.rows_RH[row * shape.width + column]);
    return job.weight_R == nullptr ? value : job.weight_R[row] * value;
  };
  constexpr int kLanes = 4;  // independent sums, so that loads need not wait
  Sum<Real> sum[kLanes] = {};
  int64_t row = first;
  for (; row + kLanes <= last; row += kLanes) {
#pragma unroll
    for (int i = 0; i < kLanes; ++i) sum[i] += value_of(row + i);
  }
  for (; row < last; ++row) sum[0] += value_of(row);
  const int64_t at = (int64_t{expert} * kSumParts + part) * shape.width + column;
  job.partial[at] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

template <class Real>
__global__ void add_parts_kernel(Shape shape, SumRows<Real> job) {
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t expert = blockIdx.y;
  if (column >= shape.width) return;
  Sum<Real> sum = 0;
  for (int part = 0; part < kSumParts; ++part) {
    sum += job.partial[(expert * kSumParts + part) * shape.width + column];
  }
  job.sum_uH[expert * shape.width + column] = device::narrow<Real>(sum);
}

__global__ void places_kernel(Shape places, Places job) {
  const int64_t place = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (place >= places.num_rows) return;
  const int expert = expert_of(places, place);
  const RowRange rows = rows_of({job.end_u, places.num_experts, 0, 0}, expert);
  const int64_t row = rows.first + place - rows_of(places, expert).first;
  job.row_P[place] = row < rows.last ? row : -1;
  if (row < rows.last) job.place_R[row] = place;
}

template <class Real>
__global__ void zero_unused_kernel(Shape shape, Real* stack, int64_t size) {
  const int expert = static_cast<int>(blockIdx.y);
  const RowRange rows = rows_of(shape, expert);
  if (rows.last > rows.first) return;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size;
       i += int64_t{gridDim.x} * kThreads) {
    stack[expert * size + i] = Real{};
  }
}

}  // namespace

template <class Real>
void launch_add_bias(const Shape& shape, const AddBias<Real>& job, CUstream_st* stream) {
  const auto launch = [&](const RowLaunch& rows, int64_t packs, auto pack) {
    add_bias_kernel<decltype(pack)::value, Real>
        <<<rows.grid, rows.block, 0, stream>>>(shape, job, packs);
  };
  device::with_packs<Real>(shape.num_rows, shape.width, launch, job.bias_uH, job.rows_RH);
}

template <class Real>
void launch_bias_dot(const Shape& shape, const BiasDot<Real>& job, CUstream_st* stream) {
  const auto launch = [&](const RowLaunch& rows, int64_t packs, auto pack) {
    bias_dot_kernel<decltype(pack)::value, Real>
        <<<rows.grid, rows.block, 0, stream>>>(shape, job, packs);
  };
  device::with_packs<Real>(shape.num_rows, shape.width, launch, job.grad_RH, job.bias_uH);
}

template <class Real>
void launch_activate(const Shape& shape, Activation activation, const Activate<Real>& job,
                     CUstream_st* stream) {
  const auto launch = [&](const RowLaunch& rows, int64_t packs, auto pack) {
    device::with_activation(activation, [&](auto act) {
      activate_kernel<decltype(act)::kActivation, decltype(pack)::value, Real>
          <<<rows.grid, rows.block, 0, stream>>>(shape, job, packs);
    });
  };
  device::with_packs<Real>(shape.num_rows, shape.width, launch, job.pre_RH, job.bias_uH,
                           job.gate_RH, job.gate_bias_uH, job.hidden_RH);
}

template <class Real>
void launch_activate_backward(const Shape& shape, Activation activation,
                              const ActivateBackward<Real>& job, CUstream_st* stream) {
  const auto launch = [&](const RowLaunch& rows, int64_t packs, auto pack) {
    device::with_activation(activation, [&](auto act) {
      activate_backward_kernel<decltype(act)::kActivation, decltype(pack)::value, Real>
          <<<rows.grid, rows.block, 0, stream>>>(shape, job, packs);
    });
  };
  device::with_packs<Real>(shape.num_rows, shape.width, launch, job.hidden_grad_RH, job.pre_RH,
                           job.gate_RH, job.hidden_RH, job.pre_grad_RH, job.gate_grad_RH);
}

template <class Real>
void launch_sum_rows(const Shape& shape, const SumRows<Real>& job, CUstream_st* stream) {
  if (shape.num_experts == 0 || shape.width == 0) return;
  const auto columns = static_cast<unsigned>((shape.width + kThreads - 1) / kThreads);
  const auto experts = static_cast<unsigned>(shape.num_experts);
  sum_parts_kernel<Real><<<dim3(columns, kSumParts, experts), kThreads, 0, stream>>>(shape, job);
  add_parts_kernel<Real><<<dim3(columns, experts), kThreads, 0, stream>>>(shape, job);
}

void launch_places(const Shape& places, const Places& job, CUstream_st* stream) {
  if (places.num_rows == 0) return;
  const auto grid = static_cast<unsigned>((places.num_rows + kThreads - 1) / kThreads);
  places_kernel<<<grid, kThreads, 0, stream>>>(places, job);
}

template <class Real>
void launch_zero_unused(const Shape& shape, Real* stack, int64_t size, CUstream_st* stream) {
  if (shape.num_experts == 0 || size == 0) return;
  const int64_t blocks = (size + kThreads - 1) / kThreads;
  const dim3 grid(static_cast<unsigned>(blocks < 64 ? blocks : 64),
                  static_cast<unsigned>(shape.num_experts));
  zero_unused_kernel<<<grid, kThreads, 0, stream>>>(shape, stack, size);
}

#define SHOAL_EXPERT_KERNELS(Real)                                                                \
  template void launch_add_bias(const Shape&, const AddBias<Real>&, CUstream_st*);                \
  template void launch_bias_dot(const Shape&, const BiasDot<Real>&, CUstream_st*);                \
  template void launch_activate(const Shape&, Activation, const Activate<Real>&, CUstream_st*);   \
  template void launch_activate_backward(const Shape&, Activation, const ActivateBackward<Real>&, \
                                         CUstream_st*);                                           \
  template void launch_sum_rows(const Shape&, const SumRows<Real>&, CUstream_st*);                \
  template void launch_zero_unused(const Shape&, Real*, int64_t, CUstream_st*);
SHOAL_EXPERT_KERNELS(float)
SHOAL_EXPERT_KERNELS(double)
SHOAL_EXPERT_KERNELS(Bfloat16)
#undef SHOAL_EXPERT_KERNELS

}  // namespace shoal::expert_mlp_cuda
