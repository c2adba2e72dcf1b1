#include "runtime/device/device.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <system_error>

#include "runtime/base/build_info.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUseCpu = "or set run.device=cpu";

/// A GPU's device file is `nvidia` and a number; `dxg` is the one of Windows' Linux subsystem.
bool is_gpu_file(const std::string& name) {
  const bool ends_in_digits = name.find_first_not_of("0123456789", 6) == std::string::npos;
  return name == "dxg" || (name.starts_with("nvidia") && name.size() > 6 && ends_in_digits);
}

bool has_gpu_file(const std::string& folder) {
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    if (is_gpu_file(entry->path().filename().string())) return true;
  }
  return false;
}

std::string plugin_path(const DevicePlaces& places) {
  return places.plugin_path.empty() ? cuda_plugin_path() : places.plugin_path;
}

/// Asks the loaded plug-in, see DescribeKernels; without one returns 0.
int describe_kernels(int ordinal, std::vector<int>& built_for) {
  const auto describe = reinterpret_cast<DescribeKernels>(dlsym(RTLD_DEFAULT, kDescribeKernels));
  return describe == nullptr ? 0 : describe(ordinal, &built_for);
}

c10::Device visible_gpu(const GpuPlace& place) {
  const auto& hooks = at::detail::getCUDAHooks();
  const int64_t count = at::globalContext().hasCUDA() ? hooks.deviceCount() : 0;
  if (!hooks.hasCUDART()) {
    throw Error(ExitCode::kTopology,
                "device: cuda: the CUDA driver shows no GPU, or LibTorch was asked for CUDA before "
                "the plug-in was loaded, and keeps to its answer",
                "look at nvidia-smi, " + std::string(kUseCpu));
  }
  const c10::Device gpu(c10::DeviceType::CUDA,
                        static_cast<c10::DeviceIndex>(gpu_of_local_rank(place, count)));
  std::vector<int> built_for;
  const int capability = describe_kernels(gpu.index(), built_for);
  require_kernels(gpu.index(), capability, built_for);
  c10::impl::VirtualGuardImpl(gpu.type()).setDevice(gpu);
  return gpu;
}

}  // namespace

int64_t gpu_of_local_rank(const GpuPlace& place, int64_t num_visible) {
  const int64_t rank = place.local_rank;
  if (num_visible == 0) {
    throw Error(ExitCode::kTopology, "device: cuda: the CUDA driver shows no GPU",
                "look at nvidia-smi and at CUDA_VISIBLE_DEVICES, " + std::string(kUseCpu));
  }
  if (num_visible == 1 || place.shares || rank < num_visible) return rank % num_visible;
  throw Error(ExitCode::kTopology,
              "device: cuda: rank " + std::to_string(rank) + " of this machine needs GPU " +
                  std::to_string(rank) + ", but only " + std::to_string(num_visible) +
                  " are visible",
              "start at most " + counted(num_visible, "rank") +
                  " on a machine, set parallel.share_gpu=true for trials, " + kUseCpu);
}

int kernels_for(int gpu, const std::vector<int>& built_for) {
  int found = 0;
  for (const int built : built_for) {
    const bool runs_here = built / 10 == gpu / 10 || built == built_for.back();
    if (built <= gpu && runs_here) found = built;
  }
  return found;
}

std::vector<int> plugin_capabilities() {
  std::vector<int> built_for;
  describe_kernels(-1, built_for);
  return built_for;
}

std::string advice_on_kernels(int gpu, const std::vector<int>& built) {
  if (gpu < 80) return "use a GPU of capability 8.0 or newer";
  return fmt::format("build with -DSHOAL_CUDA_ARCHITECTURES='{};{}'", fmt::join(built, ";"), gpu);
}

void require_kernels(int64_t ordinal, int gpu, const std::vector<int>& built_for) {
  if (kernels_for(gpu, built_for) != 0) return;
  throw Error(ExitCode::kTopology,
              fmt::format("device: cuda: GPU {} is sm_{}, and the CUDA plug-in was built for sm_{}",
                          ordinal, gpu, fmt::join(built_for, ", sm_")),
              fmt::format("{}, {}", advice_on_kernels(gpu, built_for), kUseCpu));
}

std::string cuda_plugin_path() {
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&cuda_plugin_path), &library) == 0) return "";
  return (fs::path(library.dli_fname).parent_path() / "libshoal_cuda.so").string();
}

void load_cuda_plugin(const std::string& path) {
  // Never closed: torch keeps pointers to what it registers.
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
  const char* text = dlerror();
  throw Error(ExitCode::kTopology,
              "device: cuda: cannot load the CUDA plug-in " + path + ": " +
                  (text != nullptr ? text : "unknown error"),
              "run launch/setup, which installs missing CUDA libraries, then build again, " +
                  std::string(kUseCpu));
}

std::string how_to_build_plugin() {
  return build_info().cuda_toolkit.empty()
             ? "install the CUDA 13.0 toolkit, run launch/setup and build again"
             : "build it in Shoal's source folder: cmake --build --preset release --target program";
}

std::string cuda_absence(const DevicePlaces& places) {
  const std::string plugin = plugin_path(places);
  if (!fs::exists(plugin)) return "the CUDA plug-in is not built (" + plugin + ")";
  if (has_gpu_file(places.device_file_folder)) return "";
  return "this machine has no GPU (no " + places.device_file_folder + "/nvidia0)";
}

DeviceChoice resolve_device(const std::string& name, const GpuPlace& place,
                            const DevicePlaces& places) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (name == "cpu") return {cpu, "run.device is cpu"};
  if (name != "cuda" && name != "auto") {
    throw ConfigError("run.device: '" + name + "', expected cpu, cuda or auto");
  }
  const std::string plugin = plugin_path(places);
  const std::string absent = cuda_absence(places);
  if (!absent.empty()) {
    if (name == "auto") return {cpu, "run.device is auto, and " + absent};
    const std::string next = fs::exists(plugin)
                                 ? "run on a machine with an NVIDIA GPU and its driver"
                                 : how_to_build_plugin();
    throw Error(ExitCode::kTopology, "device: cuda: " + absent, next + ", " + kUseCpu);
  }
  load_cuda_plugin(plugin);
  return {visible_gpu(place), "run.device is " + name};
}

}  // namespace shoal
