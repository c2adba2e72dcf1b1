#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/job/launch_info.h"
#include "launch/recipe/recipe.h"
#include "parallel/comm/communicator.h"
#include "parallel/nccl/nccl_functions.h"
#include "runtime/device/device.h"

namespace shoal {

/// The devices that the ranks of a job compute on, and the communicator of GPUs.
struct RankDevices {
  DeviceChoice own;                    ///< device of this rank
  std::vector<std::string> log_lines;  ///< NCCL's version; on rank 0 also the placement of ranks
  /// Communicator of all ranks. Uses NCCL unless there is a single rank; null on CPUs.
  std::unique_ptr<Communicator> gpu_world;
};

/// True if this processor has instructions for products of bfloat16: avx512_bf16 or amx_bf16.
bool cpu_has_bfloat16();

/// Throws Error (exit 11) if train.precision is bfloat16 and the device is a processor without
/// instructions for it. `has_bfloat16`: replaced in tests.
void check_precision(Precision precision, const c10::Device& device,
                     bool has_bfloat16 = cpu_has_bfloat16());

/// Sets the precision of LibTorch's GPU products: float32 products round their factors to TF32 only
/// if `tf32` is true, and bfloat16 products are accumulated in float32.
void set_gpu_precision(bool tf32);

/// Time limits of NCCL's transfers, their start and barriers, by run.hang_timeout; unset: no limit.
NcclLimits nccl_limits(const std::optional<Duration>& hang_timeout);

/// Gives each rank its device and connects ranks on GPUs by NCCL. Of its machine's GPUs, a rank
/// uses the one whose index is its local rank. Collective over `world`, which moves CPU tensors and
/// outlives the result's communicators. Call it before anything that may ask LibTorch for CUDA. If
/// an NCCL transfer fails later, an NcclWatch ends the job with the failure's exit code.
///
/// All CUDA kernels are in the plug-in libshoal_cuda.so, which builds without CUDA lack. Throws
/// Error (exit 11) if a rank that is to use a GPU lacks the plug-in, a GPU or NCCL; if ranks share
/// a GPU and parallel.share_gpu or NCCL's version forbids it; if only some ranks have a GPU; and as
/// check_precision. Throws Error (exit 14) if ranks have plug-ins of different builds.
RankDevices bind_ranks(const Recipe& recipe, const LaunchInfo& launch, Communicator& world);

}  // namespace shoal
