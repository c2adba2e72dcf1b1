#pragma once

#include <string>

namespace shoal {

/// Versions of what this program was built from, for a run's `env.json` and `shoal doctor`.
struct BuildInfo {
  std::string version;        ///< of Shoal, `0.1.0`
  std::string git_revision;   ///< 12 digits, plus `-dirty` if files had changed; or `unknown`
  std::string compiler;       ///< `GNU 12.2.0`
  std::string build_type;     ///< `Release` or `Debug`
  std::string flags;          ///< compiler flags of the build type
  std::string torch_version;  ///< of the LibTorch built against, `2.11.0`
  std::string mpi;            ///< name and version of the MPI library
  std::string cuda_toolkit;   ///< version of nvcc; empty if the plug-in was not built
};

const BuildInfo& build_info();

}  // namespace shoal
