#pragma once

#include <torch/types.h>

#include <optional>
#include <string>

namespace shoal {

/// Matrix products timed on the threads of this process.
struct TimedProducts {
  double flops_per_second = 0;  ///< of the fastest one
  /// CPU time that the process got, over what its threads could have used: 1 on cores of its own,
  /// less where other jobs or other ranks run on them.
  double core_share = 1;
};

/// Products of square matrices of this dtype, with the threads that this process has, for about
/// 0.1 s.
TimedProducts time_products(torch::Dtype dtype);

/// The most that a rank's device computes, which model FLOPs utilisation (MFU) is a share of.
struct PeakRate {
  double flops_per_second = 0;  ///< 0: not known
  /// "measured", "run.peak_tflops" or the GPU's name; else why it is not known.
  std::string source;
};

/// The GPUs of this machine as their driver names them, if all are of one model; "" if not, or if
/// there are none. `proc`: /proc; tests have another.
std::string gpu_model(const std::string& proc = "/proc");

/// The dense peak in the makers' data sheets, never that of 2:4 sparsity; nothing for a model or a
/// dtype that the table does not have.
std::optional<double> gpu_flops(const std::string& model, torch::Dtype dtype);

/// That of a rank on `device` that computes in `dtype`. `wanted`: run.peak_tflops. `timed`: of a
/// rank on a CPU; a rate measured on shared cores is not its peak.
PeakRate peak_rate(const torch::Device& device, torch::Dtype dtype, std::optional<double> wanted,
                   const TimedProducts& timed);

}  // namespace shoal
