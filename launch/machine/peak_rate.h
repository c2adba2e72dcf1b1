#pragma once

#include <torch/types.h>

#include <optional>
#include <string>

namespace shoal {

/// Result of timing matrix products on this process's threads.
struct TimedProducts {
  double flops_per_second = 0;  ///< rate of the fastest product
  /// CPU time that the process got over the time its threads could have used: 1 if it has the cores
  /// for itself, less if other jobs or ranks run on them.
  double core_share = 1;
};

/// Multiplies square matrices of this dtype for about 0.1 s on the process's CPU threads.
TimedProducts time_products(torch::Dtype dtype);

/// Peak rate of the device of a rank: the denominator of model FLOPs utilisation (MFU).
struct PeakRate {
  double flops_per_second = 0;  ///< 0: unknown
  /// Where the rate is from: "measured", "run.peak_tflops", or the GPU's name; if unknown, why.
  std::string source;
};

/// Model name of this machine's GPUs as reported by the driver; "" if there are none or several
/// models. `proc`: /proc, replaceable in tests.
std::string gpu_model(const std::string& proc = "/proc");

/// Dense peak rate of a GPU model in FLOP/s, without 2:4 sparsity, from its data sheet; nullopt for
/// a model or dtype that the table lacks. `tf32`: float32 products use TF32 (run.tf32).
std::optional<double> gpu_flops(const std::string& model, torch::Dtype dtype, bool tf32 = false);

/// Peak of a rank on `device` that computes in `dtype`: `wanted` (run.peak_tflops) if set. Else, on
/// a CPU the rate of `timed`, unknown if other jobs used the cores; on a GPU that of gpu_flops.
PeakRate peak_rate(const torch::Device& device, torch::Dtype dtype, std::optional<double> wanted,
                   const TimedProducts& timed, bool tf32 = false);

}  // namespace shoal
