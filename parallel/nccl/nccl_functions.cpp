#include "parallel/nccl/nccl_functions.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "runtime/base/error.h"

namespace shoal {
namespace {

/// NCCL writes 2.8.x as 28xx and later versions as 2mmpp.
struct Version {
  explicit Version(int code)
      : major_number(code < 10000 ? code / 1000 : code / 10000),
        minor_number(code < 10000 ? code / 100 % 10 : code / 100 % 100),
        patch(code % 100) {}
  int major_number;
  int minor_number;
  int patch;

  bool is_before(int wanted_major, int wanted_minor) const {
    return std::pair(major_number, minor_number) < std::pair(wanted_major, wanted_minor);
  }
};

constexpr int kShareMajor = 2;
constexpr int kShareMinor = 30;

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
  const Version parts(version);
  return fmt::format("{}.{}.{}", parts.major_number, parts.minor_number, parts.patch);
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
  const Version header(nccl.header_version);
  if (Version(version).is_before(header.major_number, header.minor_number)) {
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
  if (!share_gpu) return {};
  if (Version(version).is_before(kShareMajor, kShareMinor)) {
    throw Error(ExitCode::kTopology,
                fmt::format("parallel.share_gpu: two ranks on one GPU need NCCL {}.{} or newer; "
                            "this is {}",
                            kShareMajor, kShareMinor, nccl_version_text(version)),
                "start one rank per GPU, or install a newer NCCL");
  }
  return {{"NCCL_MULTI_RANK_GPU_ENABLE", "1"}};
}

}  // namespace shoal
