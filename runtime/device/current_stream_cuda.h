#pragma once

#include <c10/cuda/CUDAStream.h>

namespace shoal {

/// The stream on which LibTorch queues its operators.
inline CUstream_st* current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

}  // namespace shoal
