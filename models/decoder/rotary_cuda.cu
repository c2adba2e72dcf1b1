#include <cuda_runtime.h>

#include "models/decoder/rotary_cuda.h"
#include "runtime/kernels/row_kernels.cuh"

// B sequences  N heads  S tokens  H head width
namespace shoal::rotary_cuda {
namespace {

using device::load_wide;
using device::Sum;

template <int kPack, class Real>
__global__ void rotate_kernel(Heads heads, Rotate<Real> job) {
  const int64_t row = device::own_row();
  const int64_t head = row / heads.tokens, token = row - head * heads.tokens;
  const int N = static_cast<int>(heads.heads), sequence = static_cast<int>(head) / N;
  if (sequence >= heads.sequences) return;
  const int64_t n = static_cast<int>(head) - sequence * N;
  const Real* x =
      job.x_BNSH + sequence * heads.stride_B + n * heads.stride_N + token * heads.stride_S;
  Real* y = job.y_BNSH + row * 2 * heads.half;
  const int64_t angles = (job.has_own_angles ? sequence * heads.tokens : 0) + token;
  const int packs = static_cast<int>(heads.half / kPack);
  for (int c = threadIdx.x; c < packs; c += static_cast<int>(blockDim.x)) {
    auto first = load_wide<kPack>(x, c), second = load_wide<kPack>(x, packs + c);
    const auto cos = load_wide<kPack>(job.cos + angles * heads.half, c);
    const auto sin = load_wide<kPack>(job.sin + angles * heads.half, c);
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      const Sum<Real> u = first.value[e], v = second.value[e];
      const Sum<Real> s = job.is_inverse ? -sin.value[e] : sin.value[e];
      first.value[e] = u * cos.value[e] - v * s;
      second.value[e] = v * cos.value[e] + u * s;
    }
    device::store_narrow<kPack>(y, c, first);
    device::store_narrow<kPack>(y, packs + c, second);
  }
}

}  // namespace

template <class Real>
void launch(const Heads& heads, const Rotate<Real>& job, CUstream_st* stream) {
  const auto launch_packs = [&](const device::RowLaunch& rows, int64_t, auto pack) {
    rotate_kernel<decltype(pack)::value><<<rows.grid, rows.block, 0, stream>>>(heads, job);
  };
  device::with_packs<Sum<Real>>(heads.sequences * heads.heads * heads.tokens, heads.half,
                                launch_packs, job.x_BNSH, job.cos, job.sin, job.y_BNSH);
}

template void launch(const Heads&, const Rotate<float>&, CUstream_st*);
template void launch(const Heads&, const Rotate<double>&, CUstream_st*);
template void launch(const Heads&, const Rotate<Bfloat16>&, CUstream_st*);

}  // namespace shoal::rotary_cuda
