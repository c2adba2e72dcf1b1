// Must not fuse: it must choose as the kernels of single steps do, ties included.
#include <cuda_runtime.h>

#include <type_traits>

#include "moe/kernels/best_units.cuh"
#include "moe/routing/fused_router_cuda.h"
#include "runtime/kernels/row_kernels.cuh"

// T tokens  U units  K choices
//
// A lane holds the units lane, lane + lanes, ... of its row in registers, kPerLane of them at most;
// lane j < K holds the row's choice j. U <= 256 and K <= 8.
namespace shoal::fused_router_cuda {
namespace {

using device::kThreads;
using device::RowLaunch;
using device::Scored;

constexpr int kMostUnits = 256;
constexpr unsigned kMostBlocks = 528;  // four for each multiprocessor of the largest Hopper

/// One row's units of a lane.
template <int kPerLane, class Real>
struct Units {
  Real value[kPerLane];

  __device__ static int unit(int i) {
    return static_cast<int>(threadIdx.x) + i * static_cast<int>(blockDim.x);
  }
  /// The value of a unit of the row, in all its lanes.
  __device__ Real of(int unit) const {
    const int lanes = static_cast<int>(blockDim.x);
    Real found = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) found = unit / lanes == i ? value[i] : found;
    return device::of_lane(found, unit & (lanes - 1));
  }
};

template <int kPerLane, class Real>
__device__ Units<kPerLane, Real> scores(const Shape& shape, const Units<kPerLane, Real>& logits) {
  Units<kPerLane, Real> result;
  if (shape.score == RouterScore::kSigmoid) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      result.value[i] = Real(1) / (Real(1) + exp(-logits.value[i]));
    }
    return result;
  }
  Real highest = logits.unit(0) < shape.num_units ? logits.value[0] : Real(-INFINITY), sum = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (logits.unit(i) < shape.num_units && logits.value[i] > highest) highest = logits.value[i];
  }
  highest = device::max_lanes(highest);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    result.value[i] = device::exp_below(logits.value[i], highest);
    if (logits.unit(i) < shape.num_units) sum += result.value[i];
  }
  const Real scale = Real(1) / device::sum_lanes(sum);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) result.value[i] *= scale;
  return result;
}

/// The best units of a row, one after the other.
template <int kPerLane, class Real>
struct Selection {
  Units<kPerLane, Real> worth;
  unsigned taken = 0;

  __device__ Scored<Real> take(int num_units) {
    Scored<Real> best;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const Scored<Real> own{worth.value[i], worth.unit(i)};
      if (own.unit < num_units && (taken >> i & 1) == 0 && own.goes_before(best)) best = own;
    }
    best = device::best_of_lanes(best);
    const int lanes = static_cast<int>(blockDim.x);
    if ((best.unit & (lanes - 1)) == static_cast<int>(threadIdx.x))
      taken |= 1u << best.unit / lanes;
    return best;
  }
};

/// The weight of this lane's choice; `score` and `logit` are that choice's.
template <class Real>
__device__ Real weight_of(const Shape& shape, Real score, Real logit) {
  if (shape.normalise == Normalise::kNone) return score;
  Real part = score, sum = 0;
  if (shape.normalise == Normalise::kTopkSoftmax) {
    Real highest = device::of_lane(logit, 0);  // with a bias not the first choice's
    for (int j = 1; j < shape.k; ++j) {
      const Real other = device::of_lane(logit, j);
      highest = other > highest ? other : highest;
    }
    part = exp(logit - highest);
  }
  for (int j = 0; j < shape.k; ++j) sum += device::of_lane(part, j);
  return shape.normalise == Normalise::kSum ? part / (sum + Real(kLeastScoreSum)) : part / sum;
}

template <int kPerLane, class Real>
__global__ void forward_kernel(Shape shape, Forward<Real> job) {
  __shared__ int count_U[kMostUnits];
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  for (int u = thread; u < kMostUnits; u += kThreads) count_U[u] = 0;
  __syncthreads();
  const int64_t stride = int64_t{gridDim.x} * blockDim.y;
  const int lane = static_cast<int>(threadIdx.x);
  for (int64_t first = int64_t{blockIdx.x} * blockDim.y; first < shape.num_tokens;
       first += stride) {
    const int64_t row = first + threadIdx.y;
    const bool is_there = row < shape.num_tokens;  // all lanes take part
    const int64_t at = row * shape.num_units;
    Units<kPerLane, Real> logits;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int unit = logits.unit(i);
      logits.value[i] = is_there && unit < shape.num_units ? job.logits_TU[at + unit] : Real(0);
    }
    const Units<kPerLane, Real> score = scores(shape, logits);
    Selection<kPerLane, Real> selection;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int unit = logits.unit(i);
      if (unit >= shape.num_units) continue;
      if (is_there) job.score_TU[at + unit] = score.value[i];
      selection.worth.value[i] = device::ordered(
          job.bias_U == nullptr ? logits.value[i] : score.value[i] + job.bias_U[unit]);
    }
    int own_unit = 0;
    Real own_score = 0, own_logit = 0;
    for (int j = 0; j < shape.k; ++j) {
      const int unit = selection.take(shape.num_units).unit;
      const Real unit_score = score.of(unit), unit_logit = logits.of(unit);
      if (lane != j) continue;
      own_unit = unit;
      own_score = unit_score;
      own_logit = unit_logit;
    }
    const Real weight = weight_of(shape, own_score, own_logit);
    if (!is_there || lane >= shape.k) continue;
    const int64_t choice = row * shape.k + lane;
    job.choice_TK[choice] = own_unit;
    job.chosen_TK[choice] = own_score;
    job.weight_TK[choice] = weight;
    atomicAdd(count_U + own_unit, 1);
  }
  __syncthreads();
  for (int u = thread; u < shape.num_units; u += kThreads) {
    if (count_U[u] > 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(job.count_U + u),
                static_cast<unsigned long long>(count_U[u]));
    }
  }
}

/// Gradients by the score and by the logit of this lane's choice, through its weight.
template <class Real>
struct ChoiceGradient {
  Real score = 0, logit = 0;
};

template <class Real>
__device__ ChoiceGradient<Real> choice_gradient(const Shape& shape, Real grad, Real weight,
                                                Real score) {
  if (shape.normalise == Normalise::kNone) return {grad, Real(0)};
  Real dot = 0, sum = 0;
  for (int j = 0; j < shape.k; ++j) {
    dot += device::of_lane(grad * weight, j);
    sum += device::of_lane(score, j);
  }
  if (shape.normalise == Normalise::kTopkSoftmax) return {Real(0), weight * (grad - dot)};
  return {(grad - dot) / (sum + Real(kLeastScoreSum)), Real(0)};
}

template <int kPerLane, class Real>
__global__ void backward_kernel(Shape shape, Backward<Real> job) {
  const int64_t row = device::own_row();
  const bool is_there = row < shape.num_tokens;  // all lanes take part
  const int64_t at = row * shape.num_units;
  const int lane = static_cast<int>(threadIdx.x);
  const bool has_choice = is_there && lane < shape.k;
  const int64_t choice = row * shape.k + lane;
  const int own_unit = has_choice ? static_cast<int>(job.choice_TK[choice]) : -1;
  const bool has_grad = has_choice && job.weight_grad_TK != nullptr;
  const ChoiceGradient<Real> own =
      choice_gradient(shape, has_grad ? job.weight_grad_TK[choice] : Real(0),
                      has_choice ? job.weight_TK[choice] : Real(0),
                      has_choice ? job.score_TU[at + own_unit] : Real(0));
  Units<kPerLane, Real> score, grad, logit_grad;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int unit = grad.unit(i);
    const bool is_unit = is_there && unit < shape.num_units;
    score.value[i] = is_unit ? job.score_TU[at + unit] : Real(0);
    grad.value[i] =
        is_unit && job.score_grad_TU != nullptr ? job.score_grad_TU[at + unit] : Real(0);
    logit_grad.value[i] = 0;
  }
  for (int j = 0; j < shape.k; ++j) {
    const int unit = device::of_lane(own_unit, j);
    const Real by_score = device::of_lane(own.score, j), by_logit = device::of_lane(own.logit, j);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (grad.unit(i) != unit) continue;
      grad.value[i] += by_score;
      logit_grad.value[i] += by_logit;
    }
  }
  Real dot = 0;
  if (shape.score == RouterScore::kSoftmax) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) dot += grad.value[i] * score.value[i];
    dot = device::sum_lanes(dot);
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int unit = grad.unit(i);
    if (!is_there || unit >= shape.num_units) continue;
    const Real slope = shape.score == RouterScore::kSoftmax
                           ? score.value[i] * (grad.value[i] - dot)
                           : grad.value[i] * score.value[i] * (Real(1) - score.value[i]);
    job.grad_TU[at + unit] = slope + logit_grad.value[i];
  }
}

/// Calls `body` with kPerLane as a constant.
template <class Body>
void with_units_per_lane(int num_units, const Body& body) {
  if (num_units <= 32) return body(std::integral_constant<int, 1>{});
  if (num_units <= 64) return body(std::integral_constant<int, 2>{});
  if (num_units <= 128) return body(std::integral_constant<int, 4>{});
  body(std::integral_constant<int, 8>{});
}

}  // namespace

template <class Real>
void launch_forward(const Shape& shape, const Forward<Real>& job, CUstream_st* stream) {
  if (shape.num_tokens == 0) return;
  RowLaunch launch(shape.num_tokens, shape.num_units);
  if (launch.grid.x > kMostBlocks) launch.grid.x = kMostBlocks;
  with_units_per_lane(shape.num_units, [&](auto units) {
    forward_kernel<decltype(units)::value, Real>
        <<<launch.grid, launch.block, 0, stream>>>(shape, job);
  });
}

template <class Real>
void launch_backward(const Shape& shape, const Backward<Real>& job, CUstream_st* stream) {
  if (shape.num_tokens == 0) return;
  const RowLaunch launch(shape.num_tokens, shape.num_units);
  with_units_per_lane(shape.num_units, [&](auto units) {
    backward_kernel<decltype(units)::value, Real>
        <<<launch.grid, launch.block, 0, stream>>>(shape, job);
  });
}

template void launch_forward(const Shape&, const Forward<float>&, CUstream_st*);
template void launch_forward(const Shape&, const Forward<double>&, CUstream_st*);
template void launch_backward(const Shape&, const Backward<float>&, CUstream_st*);
template void launch_backward(const Shape&, const Backward<double>&, CUstream_st*);

}  // namespace shoal::fused_router_cuda
