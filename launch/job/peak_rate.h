#pragma once

#include <torch/types.h>

#include <optional>
#include <string>

namespace shoal {

/// The most that a rank's device computes, which model FLOPs utilisation (MFU) is a share of.
struct PeakRate {
  double flops_per_second = 0;
  std::string source;  ///< "measured", "run.peak_tflops" or the GPU's name, for the log
};

/// What this process reaches in a product of square matrices of this dtype, with the threads it
/// has: the best of a few, in at most about 0.2 s. Whatever else runs on its cores lowers it.
double measured_flops(torch::Dtype dtype);

/// The GPUs of this machine as their driver names them, if all are of one model; "" if not, or if
/// there are none. `folder`: the driver's, with a folder a GPU.
std::string gpu_model(const std::string& folder = "/proc/driver/nvidia/gpus");

/// The dense peak in the makers' data sheets, never that of 2:4 sparsity; nothing for a model or a
/// dtype that the table does not have.
std::optional<double> gpu_flops(const std::string& model, torch::Dtype dtype);

/// That of a rank on `device` that computes in `dtype`. `wanted`: run.peak_tflops. Nothing for a
/// GPU that is not known.
std::optional<PeakRate> peak_rate(const torch::Device& device, torch::Dtype dtype,
                                  std::optional<double> wanted);

}  // namespace shoal
