#pragma once

#include <cstdint>

#include "runtime/random/philox.h"

struct CUstream_st;

/// CUDA kernel that fills rows with keyed random numbers. Pointers are to GPU memory; the call is
/// queued on the CUDA stream.
namespace shoal::philox {

/// Output of a launch: row n gets the first P values of row id_N[n] of the random stream.
template <class Real>
struct RowsOut {
  const int64_t* id_N;
  Real* out_NP;
  int64_t N;  ///< rows
  int64_t P;  ///< values per row
};
template <class Real>
void launch_rows(const StreamKey& key, Distribution distribution, const RowsOut<Real>& rows,
                 CUstream_st* stream);

}  // namespace shoal::philox
