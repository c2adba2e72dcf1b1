#pragma once

#include <cstdint>

#include "runtime/random/philox.h"

struct CUstream_st;

/// Kernel of the random streams. Pointers are to GPU memory; the call is queued on the stream.
namespace shoal::philox {

/// Output of a launch: row n gets the values of id_N[n].
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
