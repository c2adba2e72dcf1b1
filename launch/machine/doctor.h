#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "launch/job/launch_info.h"
#include "parallel/comm/communicator.h"
#include "runtime/base/error.h"

namespace shoal {

/// One result of `shoal doctor`.
struct Finding {
  enum class Verdict {
    kOk,
    kWarn,  ///< training works, but slower or with fewer resources than possible
    kFail,  ///< training will not work
  };
  std::string host = "";  ///< machine it was found on; empty for the whole job
  std::string name = "";  ///< `memory`
  Verdict verdict = Verdict::kOk;
  std::string text = "";          ///< what was found
  std::string fix = "";           ///< suggested remedy; empty if ok
  ExitCode code = ExitCode::kOk;  ///< exit code of a training, if it would fail

  void warn(const std::string& next_step);
  void fail(ExitCode would_end_with, const std::string& next_step);
};

/// Tests with a child process whether the kernel allows reads of another process's memory.
int probe_memory_access();

/// Places of facts about a machine. Tests use others.
struct MachinePlaces {
  std::string proc = "/proc";
  std::string sys = "/sys";
  std::string dev = "/dev";
  std::string plugin_path;  ///< empty: libshoal_cuda.so beside libshoal.so
  /// Returns 0, or the errno of a refused read of another process's memory.
  std::function<int()> probe_memory_access = shoal::probe_memory_access;
};

/// Checks version and build of this program, and that it loaded the LibTorch it was built with.
std::vector<Finding> examine_build();

/// Checks CPU features, cores, memory, shared memory, free space here, the MPI library and whether
/// processes may read each other's memory (CMA). No communication.
std::vector<Finding> examine_machine(const LaunchInfo& launch, const MachinePlaces& places = {});

/// Checks GPUs, NCCL and the CUDA plug-in, which it loads, with every library that it needs.
std::vector<Finding> examine_gpu(const MachinePlaces& places = {});

/// Lists the ranks and checks that all run the same build; then tests a sum over all ranks and a
/// ring, in which each rank sends to the next. Collective; the same on every rank.
std::vector<Finding> examine_world(Communicator& world);

/// Runs all of the above. Each machine is examined by its first rank; collective, equal on all.
std::vector<Finding> examine_all(const LaunchInfo& launch, Communicator& world);

/// A line for each finding, `ok    memory      24.5 of 31.2 GiB available`, followed by any fix.
std::string to_lines(const std::vector<Finding>& findings);
/// Formats findings as one line, `{"ok": true, "exit_code": 0, "checks": [{"name", "verdict": "ok",
/// "text", "fix", "host"}, …]}`.
std::string to_json(const std::vector<Finding>& findings);
/// Returns kOk, or the code of the first failure.
ExitCode exit_code_of(const std::vector<Finding>& findings);

/// `shoal doctor [--json]`: runs all checks, prints the findings on rank 0 and returns their
/// exit_code_of. Alone or under mpirun or srun.
ExitCode doctor(bool as_json, const LaunchInfo& launch, std::ostream& out);

/// `shoal doctor --calibrate`: measures the densities above which dense products are faster than
/// sparse kernels, with the threads of a training, and stores them in the user's cache folder for
/// trainings on such a processor. Throws DataError without such a folder.
ExitCode calibrate(const LaunchInfo& launch, std::ostream& out);

}  // namespace shoal
