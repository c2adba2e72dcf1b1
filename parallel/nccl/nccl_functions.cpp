#include "parallel/nccl/nccl_functions.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "runtime/base/error.h"

namespace shoal {
namespace {

/// Major and minor number. NCCL writes 2.8.x as 28xx and later versions as 2mmpp.
std::pair<int, int> release_of(int version) {
  const int unit = version < 10000 ? 1000 : 10000;
  return {version / unit, version % unit / 100};
}

constexpr std::pair<int, int> kSharesGpus{2, 30};
constexpr std::pair<int, int> kOrdersLaunches{2, 26};

}  // namespace

std::shared_ptr<NcclBackend> nccl_backend(c10::Device gpu) {
  const auto make = reinterpret_cast<MakeNcclBackend>(dlsym(RTLD_DEFAULT, kMakeNcclBackend));
  if (make == nullptr) {
    throw CommError("NCCL: the CUDA plug-in is not loaded, and NCCL comes with it",
                    "run `shoal doctor`, which shows whether the plug-in was built and loads");
  }
  auto backend = std::make_shared<NcclBackend>();
  make(gpu.index(), backend.get());
  return backend;
}

std::string nccl_version_text(int version) {
  const auto [major_number, minor_number] = release_of(version);
  return fmt::format("{}.{}.{}", major_number, minor_number, version % 100);
}

int nccl_version(const NcclFunctions& nccl) {
  int version = 0;
  const NcclResult result = nccl.get_version(&version);
  if (result != NcclResult::kSuccess) {
    throw CommError(
        fmt::format("ncclGetVersion: {} ({})", nccl.get_error_string(result), nccl.library_file));
  }
  return version;
}

void check_nccl_library(const NcclFunctions& nccl) {
  const int version = nccl_version(nccl);
  if (release_of(version) < release_of(nccl.header_version)) {
    throw CommError(
        fmt::format("NCCL: {} is version {}, older than the {} that the CUDA plug-in was built "
                    "with",
                    nccl.library_file, nccl_version_text(version),
                    nccl_version_text(nccl.header_version)),
        "install the newer NCCL, or build the plug-in again with this one's nccl.h");
  }
  if (nccl.torch_library_file != nccl.library_file) {
    throw CommError(fmt::format("NCCL: the CUDA plug-in uses {}, but LibTorch uses {}",
                                nccl.library_file, nccl.torch_library_file),
                    "leave one of the two, or take the other out of LD_LIBRARY_PATH");
  }
}

std::string nccl_log_line(const NcclFunctions& nccl) {
  return fmt::format("NCCL {} from {}, built with {}", nccl_version_text(nccl_version(nccl)),
                     nccl.library_file, nccl_version_text(nccl.header_version));
}

std::vector<std::pair<std::string, std::string>> nccl_environment(bool share_gpu, int version) {
  std::vector<std::pair<std::string, std::string>> variables;
  if (release_of(version) >= kOrdersLaunches)
    variables.push_back({"NCCL_LAUNCH_ORDER_IMPLICIT", "1"});
  if (!share_gpu) return variables;
  if (release_of(version) < kSharesGpus) {
    throw Error(ExitCode::kTopology,
                fmt::format("parallel.share_gpu: two ranks on one GPU need NCCL {}.{} or newer; "
                            "this is {}",
                            kSharesGpus.first, kSharesGpus.second, nccl_version_text(version)),
                "start one rank per GPU, or install a newer NCCL");
  }
  variables.push_back({"NCCL_MULTI_RANK_GPU_ENABLE", "1"});
  return variables;
}

}  // namespace shoal
