#pragma once

#include <c10/core/Device.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.h"

namespace shoal {

/// A CUDA stream, opaque to all but the functions below.
struct GpuStream;

/// A CUDA event: a point in a stream's work. Freed with its last owner, even if not reached.
using GpuEvent = std::shared_ptr<void>;

/// The CUDA stream functions that communicators call, for one GPU. They come from the CUDA plug-in
/// (libshoal_cuda.so), which is loaded at run time, so that libshoal itself does not link CUDA;
/// tests pass functions on CPU memory. No function blocks.
struct GpuStreams {
  c10::Device device = c10::Device(c10::DeviceType::CPU);  ///< where buffers live
  std::string pci_id;                                      ///< `0000:3B:00.0`
  /// The streams of the process's collectives, one for each Traffic. That of exchanges has high
  /// priority: a transfer's few blocks are scheduled before the many of a matrix product.
  std::array<GpuStream*, 3> communication{};
  /// Returns the current stream of the calling thread.
  std::function<GpuStream*()> current;
  /// Returns an event after all work of the stream so far.
  std::function<GpuEvent(GpuStream* stream)> record;
  /// Makes later work of the stream wait for the event.
  std::function<void(GpuStream* stream, const GpuEvent& event)> wait;
  /// True once the event is reached. Throws if the GPU reports an error of earlier work.
  std::function<bool(const GpuEvent& event)> is_done;
  /// Queues a copy within the GPU's memory.
  std::function<void(void* to, const void* from, size_t bytes, GpuStream* stream)> copy;
};

/// NCCL's ncclResult_t, with its numbers. All other values are errors.
enum class NcclResult : int { kSuccess = 0, kInProgress = 7 };

inline bool is_error(NcclResult result) {
  return result != NcclResult::kSuccess && result != NcclResult::kInProgress;
}

/// NCCL's ncclUniqueId.
struct NcclId {
  std::array<char, 128> bytes{};
};

/// An NCCL communicator, opaque to all but the functions below.
struct NcclComm;

/// The NCCL functions that communicators call, with NCCL's names and arguments, but LibTorch's
/// dtypes. They come from the CUDA plug-in; tests pass scripted ones. Callers need no NCCL header.
///
/// NCCL communicators are blocking here: functions that connect, and calls that launch a transfer,
/// return when they are done. A thread may be blocked in one while another calls comm_abort.
struct NcclFunctions {
  int header_version = 0;          ///< NCCL_VERSION_CODE of the header
  std::string library_file;        ///< the file that was loaded
  std::string torch_library_file;  ///< the file that LibTorch uses

  std::function<NcclResult(int* version)> get_version;
  std::function<NcclResult(NcclId* id)> get_unique_id;
  /// ncclCommInitRankConfig, on the GPU that the backend was made for.
  std::function<NcclResult(NcclComm** comm, int size, const NcclId& id, int rank)> comm_init_rank;
  /// ncclCommSplit. `shares`: communicators that are split from the new one share its channels and
  /// buffers (config.splitShare), so that calls on them run one after the other.
  std::function<NcclResult(NcclComm* parent, int color, int key, bool shares, NcclComm** comm)>
      comm_split;
  std::function<NcclResult(NcclComm* comm, NcclResult* state)> comm_get_async_error;
  std::function<NcclResult(NcclComm* comm)> comm_finalize;
  std::function<NcclResult(NcclComm* comm)> comm_destroy;
  std::function<NcclResult(NcclComm* comm)> comm_abort;
  std::function<std::string(NcclResult result)> get_error_string;
  std::function<std::string(NcclComm* comm)> get_last_error;

  std::function<NcclResult()> group_start;
  std::function<NcclResult()> group_end;
  using Reduction = NcclResult(const void* in, void* out, size_t count, torch::ScalarType type,
                               ReduceOp op, NcclComm* comm, GpuStream* stream);
  std::function<Reduction> all_reduce;
  std::function<Reduction> reduce_scatter;  ///< `count`: elements of `out`, one rank's share
  /// `out` is used on the root only; other ranks pass nullptr.
  std::function<NcclResult(const void* in, void* out, size_t count, torch::ScalarType type,
                           ReduceOp op, int root, NcclComm* comm, GpuStream* stream)>
      reduce;
  /// `count`: elements of `in`, one rank's share.
  std::function<NcclResult(const void* in, void* out, size_t count, torch::ScalarType type,
                           NcclComm* comm, GpuStream* stream)>
      all_gather;
  std::function<NcclResult(const void* in, void* out, size_t count, torch::ScalarType type,
                           int root, NcclComm* comm, GpuStream* stream)>
      broadcast;
  std::function<NcclResult(const void* in, size_t count, torch::ScalarType type, int peer,
                           NcclComm* comm, GpuStream* stream)>
      send;
  std::function<NcclResult(void* out, size_t count, torch::ScalarType type, int peer,
                           NcclComm* comm, GpuStream* stream)>
      recv;
};

/// Time limits, after which a step of NCCL counts as failed and its communicator is aborted;
/// kNever: no limit. A peer may hold up a call by a save or an evaluation. Recipe key
/// run.hang_timeout sets launch, transfer and barrier. MPI has no limits.
struct NcclLimits {
  /// Until all ranks have come to connect, and then until they have.
  std::chrono::milliseconds init = std::chrono::minutes(10);
  /// Until a call is queued on the GPU; the first call between two ranks also connects them.
  std::chrono::milliseconds launch = std::chrono::minutes(30);
  std::chrono::milliseconds transfer = std::chrono::minutes(30);  ///< between two completions
  /// Until all calls are done, and then until all ranks have come to the barrier.
  std::chrono::milliseconds barrier = std::chrono::minutes(30);
  std::chrono::milliseconds finalize = std::chrono::minutes(1);  ///< for an orderly shutdown

  /// Returns limits with `hang_timeout` for launch, transfer and barrier; kNever: without these.
  static NcclLimits of(std::chrono::milliseconds hang_timeout) {
    return {.launch = hang_timeout, .transfer = hang_timeout, .barrier = hang_timeout};
  }
};

class NcclWatch;

/// The NCCL functions and streams of one GPU, which all communicators of a process share.
struct NcclBackend {
  NcclFunctions nccl;
  GpuStreams streams;
  NcclLimits limits;
  std::shared_ptr<NcclWatch> watch;  ///< polls all calls for failures; default: none
  mutable std::mutex launching;      ///< held from the start of a call until NCCL has queued it
  /// After the newest call of Traffic::kExchange; null: none so far. Sums of gradients wait for it
  /// on their stream, so that they do not delay an exchange that is queued.
  mutable GpuEvent last_exchange;
};

/// Returns the functions and streams for this GPU from the CUDA plug-in. Call once per process:
/// each backend has its own streams. Throws CommError if the plug-in is not loaded.
std::shared_ptr<NcclBackend> nccl_backend(c10::Device gpu);

/// The function that the plug-in exports for nccl_backend; `ordinal`: the GPU's index.
inline constexpr const char* kMakeNcclBackend = "shoal_make_nccl_backend";
using MakeNcclBackend = void (*)(int ordinal, NcclBackend* backend);

/// Returns "2.28.9" for NCCL's version code 22809.
std::string nccl_version_text(int version);

/// Returns the version code of the loaded library. Throws CommError if the call fails.
int nccl_version(const NcclFunctions& nccl);

/// Throws CommError if the library is older than the header's major.minor, or not LibTorch's.
void check_nccl_library(const NcclFunctions& nccl);

/// Returns a line for the log: `NCCL 2.28.9 from /usr/lib/libnccl.so.2, built with 2.28.9`.
std::string nccl_log_line(const NcclFunctions& nccl);

/// Returns the environment variables (name, value) to set before the first communicator is made.
///
/// NCCL_LAUNCH_ORDER_IMPLICIT=1, from 2.26 on: transfers of different communicators start on the
/// GPU in the order in which the host launched them, so that two ranks cannot wait for each other.
/// `share_gpu`: several ranks use one GPU (recipe key parallel.share_gpu). This needs
/// NCCL_MULTI_RANK_GPU_ENABLE=1 and a `version` of 2.30 or newer; throws Error (exit 11) if older.
std::vector<std::pair<std::string, std::string>> nccl_environment(bool share_gpu, int version);

}  // namespace shoal
