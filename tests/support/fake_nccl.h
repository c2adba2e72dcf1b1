#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/nccl/nccl_functions.h"

namespace shoal::testing {

struct FakeWorld;

/// One rank's NCCL and GPU, on CPU memory. What the host would find out is as with the real ones:
/// a communicator is in progress for some polls after each call and must not be called then, what
/// is started is over only when all ranks have started it, and nothing but a wait of the current
/// stream blocks (it stands for the work that would come after it).
struct FakeRank {
  /// Tests replace functions before they make a communicator.
  NcclBackend backend;
  /// What was called, in order: `record current`, `ncclSend 1 24`, ...
  std::vector<std::string> log;
  /// Name of the calling thread's current stream in the log; each name is a stream.
  std::string current_stream = "current";
  /// What ncclGetLastError says.
  std::string last_error;
};

/// NCCL of a job whose ranks are threads: it really moves the bytes between them.
class FakeNccl {
 public:
  FakeNccl();
  /// The library of one more rank. The pointer keeps all it needs alive.
  std::shared_ptr<FakeRank> join();
  /// Communicators made, destroyed in order, and aborted, over all ranks.
  int num_made() const;
  int num_destroyed() const;
  int num_aborted() const;

 private:
  std::shared_ptr<FakeWorld> world_;
};

/// The rank's tables, as make_nccl_communicator takes them.
std::shared_ptr<const NcclBackend> backend_of(const std::shared_ptr<FakeRank>& rank);

}  // namespace shoal::testing
