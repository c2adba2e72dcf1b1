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

/// True if NVML has the function and it succeeds.
template <class... Arguments>
bool call(void* nvml, const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(nvml, name));
  return function != nullptr && function(arguments...) == 0;
}

struct Gpu {
  NvmlDevice device = nullptr;
  int capability = 0;  ///< 90 is 9.0; 0: unknown
};

/// Replaces the text by what NVML reports of driver and GPUs, and returns these; none if there are
/// none.
std::vector<Gpu> examine_cards(void* nvml, Finding& finding) {
  std::array<char, 80> driver{"unknown"};
  int cuda = 0;  // 13000 is 13.0
  unsigned count = 0;
  call(nvml, "nvmlDeviceGetCount_v2", &count);
  if (count == 0) return {};
  call(nvml, "nvmlSystemGetDriverVersion", driver.data(), unsigned{driver.size()});
  call(nvml, "nvmlSystemGetCudaDriverVersion_v2", &cuda);
  finding.text =
      fmt::format("driver {} for CUDA up to {}.{}", driver.data(), cuda / 1000, cuda % 1000 / 10);
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
    finding.text += fmt::format("; {}: {}, sm_{}, {} of {} free", i, name.data(),
                                gpus[i].capability, human_bytes(free), human_bytes(total));
    if (free < 0.9 * total) finding.warn("look with nvidia-smi at what holds memory of a GPU");
  }
  // A driver runs programs of its CUDA's major version, and of older ones.
  const std::string& toolkit = build_info().cuda_toolkit;
  if (!toolkit.empty() && cuda / 1000 < std::atoi(toolkit.c_str())) {
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

/// Adds what the loaded plug-in was built for, and whether that runs on these GPUs.
void examine_kernels(const std::vector<Gpu>& gpus, Finding& plugin) {
  const std::vector<int> built_for = plugin_capabilities();
  plugin.text += fmt::format(" for sm_{}", fmt::join(built_for, ", sm_"));
  for (const Gpu& gpu : gpus) {
    const int found = kernels_for(gpu.capability, built_for);
    if (gpu.capability == 0 || found / 10 == gpu.capability / 10) continue;
    const std::string next =
        fmt::format("build with cmake -DSHOAL_CUDA_ARCHITECTURES={}", gpu.capability);
    if (found == 0) return plugin.fail(ExitCode::kTopology, next);
    plugin.warn(next + "; until then the driver compiles kernels for this GPU as they start");
  }
}

Finding plugin(const MachinePlaces& places, bool has_gpu, const std::vector<Gpu>& gpus) {
  const std::string path = places.plugin_path.empty() ? cuda_plugin_path() : places.plugin_path;
  Finding finding{.name = "cuda_plugin", .text = "not built"};
  const auto refuse = [&](const std::string& next) {
    has_gpu ? finding.fail(ExitCode::kTopology, next) : finding.warn(next);
  };
  if (!fs::exists(path)) {
    if (has_gpu) refuse("install the CUDA 13.0 toolkit, run launch/setup and build again");
    return finding;
  }
  try {
    load_cuda_plugin(path);
    finding.text = "loads, built with CUDA " + build_info().cuda_toolkit;
    examine_kernels(gpus, finding);
  } catch (const Error& error) {
    finding.text = error.what();
    refuse(error.hint());
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
  auto* get_version = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
  if (get_version != nullptr) get_version(&version);
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
  if (nvml != nullptr && call(nvml, "nvmlInit_v2")) gpus = examine_cards(nvml, gpu);
  const bool has_gpu = !gpus.empty() || !models.empty();
  if (gpus.empty() && has_gpu)
    gpu.text += "; NVML does not describe it: capability and links are unknown";
  std::vector<Finding> findings{gpu};
  if (gpus.size() > 1) findings.push_back(links(nvml, gpus));
  findings.push_back(plugin(places, has_gpu, gpus));
  findings.push_back(nccl(has_gpu));
  return findings;
}

}  // namespace shoal
