#pragma once

#include <cusparse.h>

namespace at::cuda {

/// This thread's, with the stream that LibTorch's operators are queued on. See cusparse_cpu.cpp.
cusparseHandle_t getCurrentCUDASparseHandle();

}  // namespace at::cuda
