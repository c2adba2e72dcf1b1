#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace shoal {

/// Where the CUDA plug-in and GPUs are looked for. Tests look elsewhere.
struct DevicePlaces {
  std::string plugin_path;                  ///< file; empty: libshoal_cuda.so beside libshoal.so
  std::string device_file_folder = "/dev";  ///< where GPU device files `nvidia0`, ... appear
};

struct DeviceChoice {
  c10::Device device;
  std::string reason;  ///< for the log: why this one
};

/// This process among those on its machine, as far as GPUs go.
struct GpuPlace {
  int64_t local_rank = 0;
  bool shares = false;  ///< whether ranks beyond the last GPU begin again at the first
};

/// The GPU of a rank, of those the process sees: number `local_rank`, or 0 if the launcher shows
/// each process one. Throws Error (kTopology) that names both numbers if there are fewer GPUs than
/// ranks.
int64_t gpu_of_local_rank(const GpuPlace& place, int64_t num_visible);

/// Why cuda cannot be chosen here: no plug-in, or no GPU device file. Empty if both are there.
/// Found out without torch and without loading the plug-in.
std::string cuda_absence(const DevicePlaces& places = {});

/// The device that recipe key `run.device` names: `cpu`, `cuda`, or `auto`.
///
/// `auto` is cuda if the plug-in and a GPU device file exist, else cpu; that is found out without
/// torch, which caches its answer to "is there CUDA?" at the first question. For cuda the plug-in
/// is loaded; the rank's GPU becomes the calling thread's current one.
/// Call it before anything else that may ask torch for CUDA.
///
/// Throws Error (kTopology) if cuda is asked for or chosen and there is no plug-in, no GPU, fewer
/// GPUs than local ranks, or a library of CUDA (NCCL, cuDNN, ...) that is not found, by name.
DeviceChoice resolve_device(const std::string& name, const GpuPlace& place = {},
                            const DevicePlaces& places = {});

/// Path of the plug-in that belongs to this libshoal.so, there or not.
std::string cuda_plugin_path();

/// Loads the plug-in, which registers the CUDA implementations of our and torch's operators.
/// Throws Error (kTopology) with the loader's text. Loading it twice does nothing.
void load_cuda_plugin(const std::string& path);

}  // namespace shoal
