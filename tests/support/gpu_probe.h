#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "runtime/device/device_copy.h"

namespace shoal::testing {

/// CUDA's answers about what the code under test did. The plug-in is loaded first (OnGpu does).
class GpuProbe {
 public:
  GpuProbe() {
    const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    library_ = dlopen((folder / "libtests_gpu_probe.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error(dlerror());
  }

  /// True on the emulated GPU, which has no graphs.
  bool is_emulated() const { return dlsym(library_, "shoal_probe_capture") == nullptr; }

  /// Runs `body`, in which LibTorch throws where it would make the host wait for the GPU.
  void refuse_waits(const std::function<void()>& body) const {
    const auto refuse = find<void (*)(bool)>("shoal_probe_refuse_waits");
    const Closed guard{refuse};
    refuse(true);
    body();
  }

  /// How often `body` makes the host wait for the GPU: LibTorch's waits and those for copies.
  int64_t count_waits(std::function<void()> body) const {
    const int64_t before = HostCopy::num_waits();
    const auto count = find<int64_t (*)(void (*)(void*), void*)>("shoal_probe_count_waits");
    return count(&call, &body) + HostCopy::num_waits() - before;
  }

  /// How many kernels and copies `body` gives the GPU; the emulated GPU takes an operator of
  /// LibTorch for one kernel. `body` makes the host wait for nothing.
  int64_t count_launches(std::function<void()> body) const {
    const auto count = find<int64_t (*)(void (*)(void*), void*)>("shoal_probe_count_launches");
    return count(&call, &body);
  }

  /// Work captured as a CUDA graph.
  struct Captured {
    std::function<void()> replay;  ///< runs the work once and waits for it
    int64_t num_kernels = 0;
    int64_t num_copies = 0;
  };

  /// Returns what `body` would do, captured as a CUDA graph, without running it.
  Captured capture(std::function<void()> body) const {
    void* graph = find<void* (*)(void (*)(void*), void*)>("shoal_probe_capture")(&call, &body);
    const std::shared_ptr<void> owner(graph, find<void (*)(void*)>("shoal_probe_free"));
    const auto count = find<int64_t (*)(void*, bool)>("shoal_probe_count_nodes");
    return {[owner, replay = find<void (*)(void*)>("shoal_probe_replay")] { replay(owner.get()); },
            count(graph, true), count(graph, false)};
  }

 private:
  struct Closed {
    void (*refuse)(bool);
    ~Closed() { refuse(false); }
  };

  /// Calls a std::function through C's types.
  static void call(void* function) { (*static_cast<std::function<void()>*>(function))(); }

  template <class Function>
  Function find(const char* name) const {
    void* function = dlsym(library_, name);
    if (function == nullptr) throw std::runtime_error(dlerror());
    return reinterpret_cast<Function>(function);
  }

  void* library_;
};

}  // namespace shoal::testing
