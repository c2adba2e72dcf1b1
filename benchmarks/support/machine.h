#pragma once

#include <ATen/ops/mm.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdio>

#include "benchmarks/bench.h"
#include "benchmarks/moe_shapes.h"

namespace shoal::bench {

/// The most memory that this process has held so far.
inline int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

/// Float32 products of a large square on the threads that are set: the rate that products can have,
/// in floating-point operations a microsecond. Printed, and noted as `product_gflops`.
inline double measure_product_rate(Report& report) {
  const int64_t size = 2048;
  const torch::Tensor a = normal({size, size}, 1), b = normal({size, size}, 2);
  torch::Tensor c = torch::empty({size, size});
  const std::vector<Timing> timings =
      time_interleaved({{"mm", [&] { at::mm_out(c, a, b); }}}, {10, 2, 1});
  const double flops_per_us = 2.0 * size * size * size / timings[0].median_us;
  report.note("product_gflops", flops_per_us * 1e-3);
  std::printf("products: %.0f Gflop/s\n", flops_per_us * 1e-3);
  return flops_per_us;
}

}  // namespace shoal::bench
