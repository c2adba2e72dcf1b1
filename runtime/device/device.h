#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

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

// Compute capabilities, the generations of GPUs, are numbers as nvcc takes them: 90 is 9.0.

/// Returns the capability whose kernels a GPU of capability `gpu` runs, of those in `built_for`
/// (ascending), for which kernels were compiled. This is the newest of the GPU's own generation, or
/// else the last of all if it is older than the GPU: the driver then compiles these kernels for the
/// GPU at the first start. Returns 0 if the GPU runs no kernels.
int kernels_for(int gpu, const std::vector<int>& built_for);

/// Returns the capabilities that the loaded plug-in was built for, ascending; empty without one.
std::vector<int> plugin_capabilities();

/// Returns the next step for a GPU of capability `gpu` without kernels: to build for it and for
/// those of `built`, or to use another GPU if this one is older than all that can be built for.
std::string advice_on_kernels(int gpu, const std::vector<int>& built);

/// Throws Error (kTopology) with advice_on_kernels, if the GPU numbered `ordinal`, of capability
/// `gpu`, does not run kernels built for `built_for`.
void require_kernels(int64_t ordinal, int gpu, const std::vector<int>& built_for);

/// Name of the plug-in's function that describes its kernels. The function sets `built_for` to the
/// capabilities that the plug-in was built for, and returns the capability of GPU `ordinal`, or 0
/// if `ordinal` is -1.
inline constexpr const char* kDescribeKernels = "shoal_describe_kernels";
using DescribeKernels = int (*)(int ordinal, std::vector<int>* built_for);

/// Returns why cuda cannot be chosen here: no plug-in, or no GPU device file; "" if both exist.
/// Determined without torch and without loading the plug-in.
std::string cuda_absence(const DevicePlaces& places = {});

/// Returns what the user can do about a missing plug-in: this build may have left it out, or not
/// have come to it yet.
std::string how_to_build_plugin();

/// The device that recipe key `run.device` names: `cpu`, `cuda`, or `auto`.
///
/// `auto` is cuda if the plug-in and a GPU device file exist, else cpu; this is determined without
/// torch, which caches its first answer to "is there CUDA?". For cuda loads the plug-in and makes
/// the rank's GPU the calling thread's current one. Call it before torch may be asked for CUDA.
///
/// Throws Error (kTopology) if cuda is requested or chosen and there is no plug-in, no GPU, fewer
/// GPUs than local ranks, a GPU that the plug-in was not built for, or a CUDA library (NCCL, cuDNN,
/// ...) is missing; the message names which.
DeviceChoice resolve_device(const std::string& name, const GpuPlace& place = {},
                            const DevicePlaces& places = {});

/// Path of the plug-in that belongs to this libshoal.so, whether it exists or not.
std::string cuda_plugin_path();

/// Loads the plug-in, which registers the CUDA implementations of our and torch's operators; a
/// second call does nothing. Throws Error (kTopology) with the loader's text.
void load_cuda_plugin(const std::string& path);

}  // namespace shoal
