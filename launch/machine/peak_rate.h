#pragma once

#include <torch/types.h>

#include <optional>
#include <string>

namespace shoal {

/// Result of timing matrix products on this process's threads.
struct TimedProducts {
  double flops_per_second = 0;  ///< of the fastest product
  /// CPU time that the process got, over what its threads could have used: 1 on exclusive cores,
  /// less if other jobs or ranks run on them.
  double core_share = 1;
};

/// Times products of square matrices of this dtype on all of this process's threads, for 0.1 s.
TimedProducts time_products(torch::Dtype dtype);

/// Peak rate of a rank's device, relative to which model FLOPs utilisation (MFU) is computed.
struct PeakRate {
  double flops_per_second = 0;  ///< 0: unknown
  /// "measured", "run.peak_tflops" or the GPU's name; else why it is unknown.
  std::string source;
};

/// The GPU model of this machine, from the driver, if all GPUs are equal; "" otherwise, or without
/// GPUs. `proc`: /proc; tests pass another.
std::string gpu_model(const std::string& proc = "/proc");

/// The dense peak from the makers' data sheets, without 2:4 sparsity; nothing for models and dtypes
/// missing from the table.
std::optional<double> gpu_flops(const std::string& model, torch::Dtype dtype);

/// Peak of a rank on `device` that computes in `dtype`. `wanted`: run.peak_tflops. `timed`: for a
/// rank on a CPU; a rate measured on shared cores is not its peak.
PeakRate peak_rate(const torch::Device& device, torch::Dtype dtype, std::optional<double> wanted,
                   const TimedProducts& timed);

}  // namespace shoal
