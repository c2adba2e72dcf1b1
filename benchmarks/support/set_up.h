#pragma once

#include <ATen/Parallel.h>

#include <cstdint>
#include <string>

#include "benchmarks/bench.h"
#include "runtime/device/tensor_memory.h"
#include "runtime/products/sgemm.h"

namespace shoal::bench {

/// Sets threads and tensor memory as the trainer does, and notes threads, dtype and the library of
/// float32 products.
inline void set_up(int64_t threads, Report& report, const std::string& dtype = "float32") {
  at::set_num_threads(static_cast<int>(threads));
  recycle_tensor_memory();
  report.note("threads", threads);
  report.note("dtype", dtype);
  report.note("float32_products", sgemm_library());
}

}  // namespace shoal::bench
