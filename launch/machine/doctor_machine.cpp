#include <ATen/Version.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <mpi.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <istream>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "launch/job/rank_facts.h"
#include "launch/machine/doctor.h"
#include "launch/machine/machine_facts.h"
#include "runtime/base/build_info.h"
#include "runtime/base/text.h"
#include "runtime/device/process_parts.h"

namespace shoal {
namespace {

using Verdict = Finding::Verdict;

constexpr double kGiB = 1024.0 * 1024 * 1024;

Finding cpu(const MachinePlaces& places) {
  const std::string info = places.proc + "/cpuinfo", model = value_after(info, "model name");
  std::istringstream flags(value_after(info, "flags"));
  const std::set<std::string> known{std::istream_iterator<std::string>(flags), {}};
  std::vector<std::string> features;
  for (const char* feature : {"avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16"}) {
    if (known.contains(feature)) features.emplace_back(feature);
  }
  Finding finding{.name = "cpu"};
  finding.text = fmt::format("{}; {}; LibTorch uses {}, float32 products by {}",
                             model.empty() ? "unknown model" : model,
                             features.empty() ? "no AVX2" : join_words(features, " "),
                             at::get_cpu_capability(), process_parts().sgemm_library());
  if (!known.contains("avx2")) {
    finding.warn("training runs several times slower than on a CPU with AVX2");
  }
  if (process_parts().misses_onednn()) {
    finding.warn(
        "oneDNN's float32 products are about twice as fast here: install libdnnl-dev "
        "(of oneDNN's builds the one that uses OpenMP)");
  }
  return finding;
}

Finding cores(const LaunchInfo& launch, const MachinePlaces& places) {
  const int64_t usable = choose_threads(std::nullopt, LaunchInfo{});
  const int64_t threads = choose_threads(std::nullopt, launch);
  Finding finding{.name = "cores"};
  finding.text = fmt::format("{} usable by this process; {} here, {} each", usable,
                             counted(launch.local_size, "rank"), counted(threads, "thread"));
  const std::optional<double> limit = cpu_limit(places.proc, places.sys);
  if (!launch.bound && launch.local_size > usable) {
    finding.warn("ranks take turns on the cores; start fewer, or use launch/run");
  } else if (limit && *limit + 0.01 < static_cast<double>(usable)) {
    finding.text += fmt::format("; the container may use {:.1f}", *limit);
    finding.warn(
        fmt::format("set run.threads={}", std::max<int64_t>(1, static_cast<int64_t>(*limit))));
  }
  return finding;
}

Finding memory(const MachinePlaces& places) {
  constexpr int64_t kComfortableBytes = int64_t{2} << 30;
  const MachineMemory machine = machine_memory(places.proc, places.sys);
  Finding finding{.name = "memory"};
  finding.text = fmt::format("{} of {} available", human_bytes(machine.available_bytes),
                             human_bytes(machine.total_bytes));
  if (machine.total_bytes < machine.installed_bytes) {
    finding.text += fmt::format("; of {} the container or ulimit -v allows no more",
                                human_bytes(machine.installed_bytes));
  }
  if (machine.available_bytes < kComfortableBytes) {
    finding.warn("a rank of a small model takes about 0.5 GiB; close other programs");
  }
  return finding;
}

Finding space(const std::string& name, const std::string& path, double wanted_bytes,
              const std::string& fix) {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) {
    return {"", name, Verdict::kWarn, path + ": " + std::strerror(errno), fix};
  }
  const double bytes = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize);
  const bool is_enough = bytes >= wanted_bytes;
  return {"", name, is_enough ? Verdict::kOk : Verdict::kWarn,
          human_bytes(bytes) + " free in " + path, is_enough ? "" : fix};
}

/// " in FOLDER": where the loaded library is that holds a function.
template <typename Function>
std::string place_of(Function* function) {
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(function), &library) == 0) return "";
  const std::filesystem::path path(library.dli_fname);  // a wheel's has "/../" in it
  return " in " + path.lexically_normal().parent_path().string();
}

Finding mpi() {
  Finding finding{.name = "mpi", .text = loaded_mpi_version() + place_of(&MPI_Get_library_version)};
  if (finding.text.find("Open MPI") == std::string::npos) {
    finding.warn("shoal is tested with Open MPI; put its libraries first in LD_LIBRARY_PATH");
  }
  return finding;
}

Finding cma(const MachinePlaces& places) {
  const int refusal = places.probe_memory_access();
  if (refusal == 0) {
    return {.name = "cma",
            .text = "processes may read each other's memory: MPI can copy large messages once"};
  }
  const auto scope = number_in(places.proc + "/sys/kernel/yama/ptrace_scope");
  return {
      "", "cma", Verdict::kWarn,
      fmt::format("ranks may not read each other's memory ({}); large messages are copied twice",
                  std::strerror(refusal)),
      scope.value_or(0) > 0 ? "as root: sysctl kernel.yama.ptrace_scope=0"
                            : "in a container: docker run --cap-add=SYS_PTRACE"};
}

std::string major_minor(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

}  // namespace

int probe_memory_access() {
  const volatile uint64_t marker = 0x53484F414C;
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return errno;
  if (child == 0) {
    uint64_t copy = 0;
    const iovec here{&copy, sizeof(copy)};
    const iovec there{const_cast<uint64_t*>(&marker), sizeof(marker)};
    const ssize_t got = ::process_vm_readv(parent, &here, 1, &there, 1, 0);
    ::_exit(got == sizeof(copy) && copy == marker ? 0 : got < 0 ? errno : EIO);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

std::vector<Finding> examine_build() {
  const BuildInfo& build = build_info();
  Finding program{.name = "shoal",
                  .text = fmt::format("{} ({}), {}, {}", build.version, build.git_revision,
                                      build.compiler, build.build_type)};
  if (build.build_type == "Debug") {
    program.warn("built for debugging: build with `cmake --preset release` to train");
  }
  const std::string loaded = loaded_torch_version();
  Finding torch{.name = "libtorch",
                .text = fmt::format("{}{}, built with {}", loaded, place_of(&at::show_config),
                                    build.torch_version)};
  if (major_minor(loaded) != major_minor(build.torch_version)) {
    torch.fail(ExitCode::kVersionSkew, "take that version out of LD_LIBRARY_PATH, or build again");
  }
  return {program, torch};
}

std::vector<Finding> examine_machine(const LaunchInfo& launch, const MachinePlaces& places) {
  return {cpu(places),
          cores(launch, places),
          memory(places),
          space("shared_memory", places.dev + "/shm", 64.0 * 1024 * 1024,
                "ranks exchange messages there; in a container: docker run --shm-size=1g"),
          space("disk", ".", kGiB, "checkpoints go below run.root; point it at a larger disk"),
          mpi(),
          cma(places)};
}

}  // namespace shoal
