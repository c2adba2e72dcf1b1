// Must not fuse: its choices depend on the last bits of scores, which are the CPU's.
#include <cuda_runtime.h>

#include "moe/kernels/best_units.cuh"
#include "moe/kernels/row_top_k_cuda.h"

// T tokens  U units  K choices
namespace shoal::top_k_cuda {
namespace {

using device::LaneBest;
using device::ordered;
using device::own_row;
using device::RowLaunch;
using device::Scored;

template <int kMost, class Real>
__global__ void top_k_kernel(TopK<Real> job) {
  const int64_t row = own_row();
  const bool is_there = row < job.num_tokens;  // all lanes take part in what follows
  const Real* score_U = job.score_TU + row * job.num_units;
  const int num_units = is_there ? static_cast<int>(job.num_units) : 0;
  LaneBest<kMost, Real> best;
  for (int unit = static_cast<int>(threadIdx.x); unit < num_units;
       unit += static_cast<int>(blockDim.x)) {
    best.enter({ordered(score_U[unit]), unit});
  }
  int found = 0;
  for (int j = 0; j < static_cast<int>(job.k); ++j) {
    Scored<Real> next = best.take();
    if (job.score_TK != nullptr && next.score == Real(-INFINITY)) next.unit = j - found;
    found += next.score > Real(-INFINITY) ? 1 : 0;
    if (!is_there || threadIdx.x != 0) continue;
    job.unit_TK[row * job.k + j] = next.unit;
    if (job.score_TK != nullptr) job.score_TK[row * job.k + j] = next.score;
  }
}

}  // namespace

template <class Real>
void launch_top_k(const TopK<Real>& job, CUstream_st* stream) {
  if (job.num_tokens == 0) return;
  const RowLaunch launch(job.num_tokens, job.num_units);
  if (job.k == 1) {
    top_k_kernel<1><<<launch.grid, launch.block, 0, stream>>>(job);
  } else if (job.k == 2) {
    top_k_kernel<2><<<launch.grid, launch.block, 0, stream>>>(job);
  } else if (job.k <= 4) {
    top_k_kernel<4><<<launch.grid, launch.block, 0, stream>>>(job);
  } else {
    top_k_kernel<8><<<launch.grid, launch.block, 0, stream>>>(job);
  }
}

template void launch_top_k(const TopK<float>&, CUstream_st*);
template void launch_top_k(const TopK<double>&, CUstream_st*);

}  // namespace shoal::top_k_cuda
