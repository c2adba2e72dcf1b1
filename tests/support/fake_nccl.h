#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/nccl/nccl_functions.h"
#include "tests/support/fake_streams.h"

namespace shoal::testing {

struct FakeWorld;

// Some of NCCL's errors.
inline constexpr NcclResult kSystemError{2}, kInternalError{3}, kInvalidArgument{4},
    kInvalidUsage{5}, kRemoteError{6};

/// The communication streams, by Traffic.
inline constexpr std::array<std::string_view, 3> kFakeStreams{"control", "exchange", "gradients"};

/// One rank's NCCL and GPU, on CPU memory. The host's work on the current stream is done at once;
/// what is on a communication stream is done as FakeStreams says: in order, transfers when all
/// their ranks have come to them, and only once somebody waits. A wait of the current stream blocks
/// (it stands for the work that would come after it).
struct FakeRank {
  /// Tests replace functions before they make a communicator.
  NcclBackend backend;
  /// What was called, in order: `record current`, `ncclSend 1 24`, ...
  std::vector<std::string> log;
  /// Name of the calling thread's current stream in the log; each name is a stream.
  std::string current_stream = "current";
  /// What ncclGetLastError says; empty: why the streams have failed.
  std::string last_error;
};

/// NCCL of a job whose ranks are threads: it really moves the bytes between them.
class FakeNccl {
 public:
  explicit FakeNccl(const FakeSchedule& schedule = {});
  /// The library of one more rank, called on its thread. The pointer keeps all it needs alive.
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
