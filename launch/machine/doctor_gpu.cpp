#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "launch/machine/doctor.h"
#include "launch/machine/machine_facts.h"
#include "runtime/base/build_info.h"
#include "runtime/base/text.h"
#include "runtime/device/device.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

// NVML, the management library of NVIDIA's driver, is opened at run time. Its header, from which
// these are, comes neither with the driver nor with CUDA's wheels.
using NvmlDevice = void*;
struct NvmlMemory {
  unsigned long long total, free, used;
};
constexpr int kNvlink = 2;  // NVML_P2P_CAPS_INDEX_NVLINK

/// True if the library has the function and it succeeds.
template <class... Arguments>
bool call(void* library, const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
  return function != nullptr && function(arguments...) == 0;
}

struct Gpu {
  NvmlDevice device = nullptr;
  int capability = 0;  ///< 90 is 9.0; 0: unknown
};

/// Sets `finding.text` to what NVML reports. Returns the GPUs; empty if NVML knows none.
std::vector<Gpu> examine_driver(void* nvml, Finding& finding) {
  std::array<char, 80> driver{"unknown"};
  int cuda = 0;  // 13000 is 13.0
  unsigned count = 0;
  call(nvml, "nvmlDeviceGetCount_v2", &count);
  if (count == 0) return {};
  call(nvml, "nvmlSystemGetDriverVersion", driver.data(), unsigned{driver.size()});
  call(nvml, "nvmlSystemGetCudaDriverVersion_v2", &cuda);
  finding.text =
      fmt::format("driver {} for CUDA up to {}", driver.data(),
                  cuda == 0 ? "unknown" : fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10));
  std::vector<Gpu> gpus(count);
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice& device = gpus[i].device;
    std::array<char, 96> name{"unnamed GPU"};
    int major = 0, minor = 0;
    NvmlMemory memory{};
    call(nvml, "nvmlDeviceGetHandleByIndex_v2", i, &device);
    call(nvml, "nvmlDeviceGetName", device, name.data(), unsigned{name.size()});
    call(nvml, "nvmlDeviceGetCudaComputeCapability", device, &major, &minor);
    call(nvml, "nvmlDeviceGetMemoryInfo", device, &memory);
    gpus[i].capability = 10 * major + minor;
    const auto free = static_cast<double>(memory.free), total = static_cast<double>(memory.total);
    finding.text +=
        fmt::format("; {}: {}, {}, {}", i, name.data(),
                    major == 0 ? "capability unknown" : fmt::format("sm_{}", gpus[i].capability),
                    memory.total == 0 ? "memory unknown"
                                      : human_bytes(free) + " of " + human_bytes(total) + " free");
    if (free < 0.9 * total) finding.warn("look with nvidia-smi at what holds memory of a GPU");
  }
  // A driver runs programs of its CUDA's major version, and of older ones.
  const std::string& toolkit = build_info().cuda_toolkit;
  if (cuda != 0 && !toolkit.empty() && cuda / 1000 < std::atoi(toolkit.c_str())) {
    finding.fail(ExitCode::kTopology, "install a driver for CUDA " + toolkit + " or newer");
  }
  return gpus;
}

/// "NVLink between all 8 GPUs", or the pairs that NVLink and PCIe connect.
Finding links(void* nvml, const std::vector<Gpu>& gpus) {
  std::map<std::string, std::string> pairs_of;
  for (size_t i = 0; i < gpus.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      int status = 1;
      call(nvml, "nvmlDeviceGetP2PStatus", gpus[k].device, gpus[i].device, kNvlink, &status);
      pairs_of[status == 0 ? "NVLink" : "PCIe"] += fmt::format(" {}-{}", k, i);
    }
  }
  std::vector<std::string> texts;
  for (const auto& [link, pairs] : pairs_of) {
    texts.push_back(
        link + (pairs_of.size() > 1 ? pairs : fmt::format(" between all {} GPUs", gpus.size())));
  }
  return {.name = "gpu_links", .text = join_words(texts)};
}

/// Adds what the loaded plug-in was built for, and whether that runs on these GPUs. GPUs that run
/// no kernels fail the check only if all do so: others may be what CUDA_VISIBLE_DEVICES shows.
void examine_kernels(const std::vector<Gpu>& gpus, Finding& plugin) {
  const std::vector<int> built_for = plugin_capabilities();
  plugin.text += fmt::format(" for sm_{}", fmt::join(built_for, ", sm_"));
  const bool none_runs = std::ranges::all_of(gpus, [&](const Gpu& gpu) {
    return gpu.capability != 0 && kernels_for(gpu.capability, built_for) == 0;
  });
  for (size_t i = 0; i < gpus.size(); ++i) {
    const int capability = gpus[i].capability, found = kernels_for(capability, built_for);
    if (capability == 0 || found / 10 == capability / 10) continue;
    const std::string next = advice_on_kernels(capability, built_for);
    if (none_runs) return plugin.fail(ExitCode::kTopology, next);
    if (found == 0) {
      return plugin.warn(
          fmt::format("GPU {} runs no kernels: hide it by CUDA_DEVICE_ORDER=PCI_BUS_ID and "
                      "CUDA_VISIBLE_DEVICES, or {}",
                      i, next));
    }
    plugin.warn(next + "; until then the driver compiles kernels for this GPU as they start");
  }
}

Finding plugin(const MachinePlaces& places, bool has_gpu, const std::vector<Gpu>& gpus) {
  const std::string path = places.plugin_path.empty() ? cuda_plugin_path() : places.plugin_path;
  Finding finding{.name = "cuda_plugin", .text = "not built"};
  if (!fs::exists(path)) {
    if (has_gpu) finding.fail(ExitCode::kTopology, how_to_build_plugin());
    return finding;
  }
  try {
    load_cuda_plugin(path);
    finding.text = "loads, built with CUDA " + build_info().cuda_toolkit;
    examine_kernels(gpus, finding);
  } catch (const Error& error) {
    finding.text = error.what();
    has_gpu ? finding.fail(ExitCode::kTopology, error.hint()) : finding.warn(error.hint());
  }
  return finding;
}

Finding nccl(bool has_gpu) {
  Finding finding{.name = "nccl", .text = "not found"};
  // Never closed: the plug-in may use it.
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    if (has_gpu) finding.warn("run launch/setup; without it a job uses one GPU");
    return finding;
  }
  int version = 0;
  call(library, "ncclGetVersion", &version);
  finding.text = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  return finding;
}

}  // namespace

std::vector<Finding> examine_gpu(const MachinePlaces& places) {
  std::vector<std::string> models = gpu_models(places.proc);
  std::ranges::replace(models, "", "unknown model");
  // Containers may show a GPU's device file without the driver's folder.
  if (models.empty() && fs::exists(places.dev + "/nvidia0")) models.push_back("unnamed GPU");
  Finding gpu{.name = "gpu",
              .text = models.empty() ? "none; training runs on the CPU" : join_words(models)};
  void* nvml = dlopen(places.nvml.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed, as NCCL uses it
  std::vector<Gpu> gpus;
  if (nvml != nullptr && call(nvml, "nvmlInit_v2")) gpus = examine_driver(nvml, gpu);
  const bool has_gpu = !gpus.empty() || !models.empty();
  if (gpus.empty() && has_gpu) {
    gpu.text += "; NVML does not answer: capability and links are unknown";
    gpu.warn("repair NVIDIA's driver, or give it to the container, until nvidia-smi lists GPUs");
  }
  std::vector<Finding> findings{gpu};
  if (gpus.size() > 1) findings.push_back(links(nvml, gpus));
  findings.push_back(plugin(places, has_gpu, gpus));
  findings.push_back(nccl(has_gpu));
  return findings;
}

}  // namespace shoal
