#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "launch/job/launch_info.h"
#include "parallel/comm/communicator.h"
#include "runtime/base/error.h"

namespace shoal {

/// One thing that doctor looked at.
struct Finding {
  enum class Verdict {
    kOk,
    kWarn,  ///< training works, but slower or with less than there could be
    kFail,  ///< training will not work
  };
  std::string host = "";  ///< machine it was found on; empty: of the job as a whole
  std::string name = "";  ///< `memory`
  Verdict verdict = Verdict::kOk;
  std::string text = "";          ///< what was found
  std::string fix = "";           ///< the next step; empty if ok
  ExitCode code = ExitCode::kOk;  ///< what training would end with, if it fails

  void warn(const std::string& next_step);
  void fail(ExitCode would_end_with, const std::string& next_step);
};

/// Asks the kernel for it, with a child process.
int probe_memory_access();

/// Where facts about a machine are read. Tests look elsewhere.
struct MachinePlaces {
  std::string proc = "/proc";
  std::string sys = "/sys";
  std::string dev = "/dev";
  std::string plugin_path;  ///< empty: libshoal_cuda.so beside libshoal.so
  /// 0, or the errno with which a process is refused a look into another's memory.
  std::function<int()> probe_memory_access = shoal::probe_memory_access;
};

/// Version and build of this program, and whether the LibTorch it found is the one it was built
/// with.
std::vector<Finding> examine_build();

/// CPU features, cores, memory, shared memory, free space here, the MPI library and whether
/// processes may read each other's memory (CMA). No communication.
std::vector<Finding> examine_machine(const LaunchInfo& launch, const MachinePlaces& places = {});

/// GPUs, the CUDA plug-in with every library it needs, NCCL. Loads the plug-in if there is one.
std::vector<Finding> examine_gpu(const MachinePlaces& places = {});

/// Who is in the world and whether all run the same build; then a sum over all ranks and a ring:
/// each rank sends to the next and checks what arrives. Collective; the same on every rank.
std::vector<Finding> examine_world(Communicator& world);

/// All of the above. Machines are examined by their first ranks; collective, the same everywhere.
std::vector<Finding> examine_all(const LaunchInfo& launch, Communicator& world);

/// `ok    memory      24.5 of 31.2 GiB available`, one line a finding; a fix follows its finding.
std::string to_lines(const std::vector<Finding>& findings);
/// One line: `{"ok": true, "exit_code": 0, "checks": [{"name", "verdict": "ok", "text", "fix",
/// "host"}, …]}`.
std::string to_json(const std::vector<Finding>& findings);
/// kOk, or the code of the first failure.
ExitCode exit_code_of(const std::vector<Finding>& findings);

/// `shoal doctor [--json]`: examines all, prints it on rank 0 and returns its exit_code_of. Alone
/// or under mpirun or srun.
ExitCode doctor(bool as_json, const LaunchInfo& launch, std::ostream& out);

/// `shoal doctor --calibrate`: measures from which densities on dense products are faster than
/// sparse kernels, with the threads that a training would have, and keeps it in the user's cache
/// folder, where trainings on such a processor find it. Throws DataError without such a folder.
ExitCode calibrate(const LaunchInfo& launch, std::ostream& out);

}  // namespace shoal
