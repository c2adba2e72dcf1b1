#pragma once

#include <torch/types.h>

#include <optional>
#include <string>

namespace shoal {

/// Result of timing matrix products on this process's threads.
struct TimedProducts {
  double flops_per_second = 0;  ///< rate of the fastest product
  /// CPU time of the process over the time its threads could have used: 1 on cores of its own, less
  /// if other jobs or ranks use the same cores.
  double core_share = 1;
};

/// Times products of square matrices of this dtype on the process's threads, for about 0.1 s.
TimedProducts time_products(torch::Dtype dtype);

/// Peak rate of a rank's device, the denominator of model FLOPs utilisation (MFU).
struct PeakRate {
  double flops_per_second = 0;  ///< 0: unknown
  /// "measured", "run.peak_tflops", or the GPU's name; if unknown, the reason.
  std::string source;
};

/// Model name of this machine's GPUs as reported by the driver; "" if there are none or several
/// models. `proc`: /proc, replaceable in tests.
std::string gpu_model(const std::string& proc = "/proc");

/// Dense peak rate (without 2:4 sparsity) from the GPU's data sheet; nullopt for a model or dtype
/// that the table lacks.
std::optional<double> gpu_flops(const std::string& model, torch::Dtype dtype);

/// Peak of a rank on `device` that computes in `dtype`. `wanted`: run.peak_tflops. `timed`: for a
/// rank on a CPU; a rate measured on shared cores is not its peak.
PeakRate peak_rate(const torch::Device& device, torch::Dtype dtype, std::optional<double> wanted,
                   const TimedProducts& timed);

}  // namespace shoal
