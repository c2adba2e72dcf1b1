#pragma once

#include <c10/cuda/CUDAStream.h>

namespace shoal {

/// The CUDA stream on which LibTorch queues this thread's operators; ours are queued there too.
inline CUstream_st* current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

}  // namespace shoal
