#pragma once

#include <cstdint>

#include "runtime/random/philox.h"

struct CUstream_st;

/// Kernels of the random streams. Pointers are to GPU memory; each call is queued on the stream.
namespace shoal::philox {

/// Values 0, 1, ... count - 1 of a fill.
template <class Real>
void launch_fill(const StreamKey& key, Distribution distribution, Real* out, int64_t count,
                 CUstream_st* stream);

/// Row n gets the values of id_N[n].
template <class Real>
struct RowsOut {
  const int64_t* id_N;
  Real* out_NP;
  int64_t N;
  int64_t P;
};
template <class Real>
void launch_rows(const StreamKey& key, Distribution distribution, const RowsOut<Real>& rows,
                 CUstream_st* stream);

}  // namespace shoal::philox
