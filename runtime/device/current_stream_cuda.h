#pragma once

#include <c10/cuda/CUDAStream.h>

namespace shoal {

/// The stream that LibTorch's operators are queued on, too.
inline CUstream_st* current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

}  // namespace shoal
