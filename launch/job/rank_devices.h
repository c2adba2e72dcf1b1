#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launch/job/launch_info.h"
#include "launch/recipe/recipe.h"
#include "parallel/comm/communicator.h"
#include "parallel/nccl/nccl_watch.h"
#include "runtime/device/device.h"

namespace shoal {

/// The devices that the ranks of a job compute on, and the communicator of GPUs.
struct RankDevices {
  DeviceChoice own;
  std::vector<std::string> log_lines;  ///< NCCL's version; on rank 0 also which rank is where
  std::shared_ptr<NcclWatch> watch;    ///< has to outlive what is split from gpu_world
  /// All ranks, by NCCL, or one alone; null on CPUs.
  std::unique_ptr<Communicator> gpu_world;
};

/// True if this processor has instructions for products of bfloat16: avx512_bf16 or amx_bf16.
bool cpu_has_bfloat16();

/// Throws Error (exit 11) if train.precision is bfloat16 and the device is a processor without
/// instructions for it. `has_bfloat16`: of the processor; tests have others.
void check_precision(Precision precision, const c10::Device& device,
                     bool has_bfloat16 = cpu_has_bfloat16());

/// Sets up LibTorch's products on GPUs: float32 means float32, as on the CPU, and sums over tokens
/// are of float32.
void use_exact_products();

/// Collective over `world`, which moves CPU tensors and outlives the result. Call it before
/// anything that may ask LibTorch for CUDA. A GPU that was asked for is never replaced quietly. The
/// GPU of a rank is that of its local rank, the launcher's; ranks then compare what they have. A
/// transfer between GPUs that fails while the host waits ends the job with the failure's exit code.
///
/// Throws Error (kTopology) without plug-in, GPU or NCCL, if ranks have one GPU and
/// parallel.share_gpu or NCCL's version does not allow it, or if only some have one; Error (exit
/// 14) if they have different plug-ins.
RankDevices bind_ranks(const Recipe& recipe, const LaunchInfo& launch, Communicator& world);

}  // namespace shoal
