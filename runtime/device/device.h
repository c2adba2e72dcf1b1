#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace shoal {

/// Where to look for GPUs and for the CUDA plug-in, libshoal_cuda.so with all CUDA kernels, which a
/// process loads only if it uses a GPU. Tests use other places.
struct DevicePlaces {
  std::string plugin_path;                  ///< file; empty: libshoal_cuda.so beside libshoal.so
  std::string device_file_folder = "/dev";  ///< where GPU device files `nvidia0`, ... appear
};

struct DeviceChoice {
  c10::Device device;
  std::string reason;  ///< for the log: why it was chosen
};

/// Which GPU of its machine this process takes.
struct GpuPlace {
  int64_t local_rank = 0;  ///< index of this process on its machine
  bool shares = false;     ///< true if ranks beyond the last GPU start again at the first
};

/// Returns which of the `num_visible` GPUs a process takes: local_rank, or local_rank modulo
/// num_visible if `place.shares` or only one is visible (launchers may show each rank its own).
/// Throws Error (kTopology) if there is no such GPU.
int64_t gpu_of_local_rank(const GpuPlace& place, int64_t num_visible);

/// Returns why cuda cannot be chosen here: no plug-in, or no GPU device file; "" if both exist.
/// Determined without torch and without loading the plug-in.
std::string cuda_absence(const DevicePlaces& places = {});

/// The device that recipe key `run.device` names: `cpu`, `cuda`, or `auto`.
///
/// `auto` is cuda if the plug-in and a GPU device file exist, else cpu; this is determined without
/// torch, which caches its first answer to "is there CUDA?". For cuda loads the plug-in and makes
/// the rank's GPU the calling thread's current one. Call it before torch may be asked for CUDA.
///
/// Throws Error (kTopology) if cuda is requested or chosen and there is no plug-in, no GPU, fewer
/// GPUs than local ranks, or a CUDA library (NCCL, cuDNN, ...) is missing, which the message names.
DeviceChoice resolve_device(const std::string& name, const GpuPlace& place = {},
                            const DevicePlaces& places = {});

/// Path of the plug-in that belongs to this libshoal.so, whether it exists or not.
std::string cuda_plugin_path();

/// Loads the plug-in, which registers the CUDA implementations of our and torch's operators; a
/// second call does nothing. Throws Error (kTopology) with the loader's text.
void load_cuda_plugin(const std::string& path);

}  // namespace shoal
