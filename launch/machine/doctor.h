#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "launch/job/launch_info.h"
#include "parallel/comm/communicator.h"
#include "runtime/base/error.h"

namespace shoal {

/// Result of one check of `shoal doctor`, which tells users what a machine lacks for training.
struct Finding {
  enum class Verdict {
    kOk,
    kWarn,  ///< training works, but slower or with restrictions
    kFail,  ///< training will fail
  };
  std::string host = "";  ///< machine of the check; empty: the job as a whole
  std::string name = "";  ///< name of the check, `memory`
  Verdict verdict = Verdict::kOk;
  std::string text = "";          ///< observation
  std::string fix = "";           ///< what the user should do; empty if ok
  ExitCode code = ExitCode::kOk;  ///< for failures: exit code with which training would end

  void warn(const std::string& next_step);
  void fail(ExitCode would_end_with, const std::string& next_step);
};

/// Tests in a child process if a process may read another's memory. Returns 0 or the errno.
int probe_memory_access();

/// Paths from which facts about a machine are read; tests replace them.
struct MachinePlaces {
  std::string proc = "/proc";
  std::string sys = "/sys";
  std::string dev = "/dev";
  std::string plugin_path;                 ///< empty: libshoal_cuda.so beside libshoal.so
  std::string nvml = "libnvidia-ml.so.1";  ///< library of the driver that describes GPUs
  /// Returns 0, or the errno if a process may not read another's memory.
  std::function<int()> probe_memory_access = shoal::probe_memory_access;
};

/// Checks version and build of this program, and that LibTorch has the version it was built with.
std::vector<Finding> examine_build();

/// Checks CPU features, cores, memory, shared memory, free disk space in the working folder, the
/// MPI library, and memory access between processes (CMA). No communication.
std::vector<Finding> examine_machine(const LaunchInfo& launch, const MachinePlaces& places = {});

/// Checks GPUs, their driver and links, the CUDA plug-in with its libraries, whether it has kernels
/// for each GPU, and NCCL. Loads the plug-in if there is one.
std::vector<Finding> examine_gpu(const MachinePlaces& places = {});

/// Checks that all ranks run the same build, then an all-reduce and a ring, in which each rank
/// sends to the next and verifies what it receives. Collective; equal results on every rank.
std::vector<Finding> examine_world(Communicator& world);

/// Runs all checks, those of a machine on its first rank. Collective; equal results on every rank.
std::vector<Finding> examine_all(const LaunchInfo& launch, Communicator& world);

/// Formats findings as lines, `ok    memory      24.5 of 31.2 GiB available`, with fixes below.
std::string to_lines(const std::vector<Finding>& findings);
/// Formats findings as one line, `{"ok": true, "exit_code": 0, "checks": [{"name", "verdict": "ok",
/// "text", "fix", "host"}, …]}`.
std::string to_json(const std::vector<Finding>& findings);
/// Returns kOk, or the code of the first failure.
ExitCode exit_code_of(const std::vector<Finding>& findings);

/// `shoal doctor [--json]`: runs all checks, prints them on rank 0 and returns their exit_code_of.
/// Runs alone or under mpirun or srun.
ExitCode doctor(bool as_json, const LaunchInfo& launch, std::ostream& out);

/// `shoal doctor --calibrate`: measures break-even densities, below which sparse kernels are faster
/// than dense products, with the threads of a training; stores them in the user's cache folder for
/// this processor model. Throws DataError without a cache folder, Error (exit 2) for several ranks.
ExitCode calibrate(const LaunchInfo& launch, std::ostream& out);

}  // namespace shoal
