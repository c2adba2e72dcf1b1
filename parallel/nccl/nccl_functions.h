#pragma once

#include <c10/core/Device.h>
#include <chrono>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shoal {

/// A CUDA stream, opaque to all but the functions below.
struct GpuStream;

/// A point in the work of a stream; freed with its last owner, even if not reached yet.
using GpuEvent = std::shared_ptr<void>;

/// The stream functions of one GPU for communicators. The plug-in gives CUDA's; tests give their
/// own, on CPU memory. Only `is_done` checks whether work is complete, and no function blocks.
struct GpuStreams {
  c10::Device device = c10::Device(c10::DeviceType::CPU);  ///< where buffers live
  std::string pci_id;                                      ///< `0000:3B:00.0`
  /// Carries all collectives of the process. One stream for all groups: otherwise kernels of two
  /// communicators could each wait for room that the other holds on some GPU.
  GpuStream* communication = nullptr;
  /// The current stream of the calling thread.
  std::function<GpuStream*()> current;
  /// Returns an event after all work of the stream so far.
  std::function<GpuEvent(GpuStream* stream)> record;
  /// Makes later work of the stream wait for the event.
  std::function<void(GpuStream* stream, const GpuEvent& event)> wait;
  /// True once the event is reached. Throws if the GPU reports an error of earlier work.
  std::function<bool(const GpuEvent& event)> is_done;
  std::function<void(void* to, const void* from, size_t bytes, GpuStream* stream)> copy;
};

/// NCCL's ncclResult_t, with its numbers.
enum class NcclResult : int {
  kSuccess = 0,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

inline bool is_error(NcclResult result) {
  return result != NcclResult::kSuccess && result != NcclResult::kInProgress;
}

/// The values of NCCL's ncclDataType_t and ncclRedOp_t that are used, with their numbers.
enum class NcclType : int { kUint8 = 1, kInt64 = 4, kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9 };
enum class NcclOp : int { kSum = 0, kMax = 2, kMin = 3 };

/// NCCL's ncclUniqueId.
struct NcclId {
  std::array<char, 128> bytes{};
};

/// An NCCL communicator, opaque to all but the functions below.
struct NcclComm;

/// The NCCL functions that communicators call, with NCCL's names and arguments. The plug-in gives
/// the library's; tests give scripted ones. The types are declared here, so that callers need
/// neither NCCL's header nor CUDA.
///
/// Communicators are non-blocking: any function may return kInProgress, and the communicator must
/// not be called again until comm_get_async_error returns another result.
struct NcclFunctions {
  int header_version = 0;          ///< NCCL_VERSION_CODE of the header
  std::string library_file;        ///< the file that was loaded
  std::string torch_library_file;  ///< the file that LibTorch uses

  std::function<NcclResult(int* version)> get_version;
  std::function<NcclResult(NcclId* id)> get_unique_id;
  /// ncclCommInitRankConfig on the GPU of the table, with config.blocking = 0.
  std::function<NcclResult(NcclComm** comm, int size, const NcclId& id, int rank)> comm_init_rank;
  std::function<NcclResult(NcclComm* comm, NcclResult* state)> comm_get_async_error;
  std::function<NcclResult(NcclComm* comm)> comm_finalize;
  std::function<NcclResult(NcclComm* comm)> comm_destroy;
  std::function<NcclResult(NcclComm* comm)> comm_abort;
  std::function<std::string(NcclResult result)> get_error_string;
  std::function<std::string(NcclComm* comm)> get_last_error;

  std::function<NcclResult()> group_start;
  std::function<NcclResult()> group_end;
  using Reduction = NcclResult(const void* in, void* out, size_t count, NcclType type, NcclOp op,
                               NcclComm* comm, GpuStream* stream);
  std::function<Reduction> all_reduce;
  std::function<Reduction> reduce_scatter;  ///< `count` elements of `out`
  /// Only the root passes an `out`.
  std::function<NcclResult(const void* in, void* out, size_t count, NcclType type, NcclOp op,
                           int root, NcclComm* comm, GpuStream* stream)>
      reduce;
  /// `count` elements of `in`.
  std::function<NcclResult(const void* in, void* out, size_t count, NcclType type, NcclComm* comm,
                           GpuStream* stream)>
      all_gather;
  std::function<NcclResult(const void* in, void* out, size_t count, NcclType type, int root,
                           NcclComm* comm, GpuStream* stream)>
      broadcast;
  std::function<NcclResult(const void* in, size_t count, NcclType type, int peer, NcclComm* comm,
                           GpuStream* stream)>
      send;
  std::function<NcclResult(void* out, size_t count, NcclType type, int peer, NcclComm* comm,
                           GpuStream* stream)>
      recv;
};

/// How long the host waits for NCCL before it gives the group up. Fixed, without a recipe key: far
/// longer than a save, an evaluation or a slow peer holds up the others. MPI waits for ever.
struct NcclLimits {
  std::chrono::milliseconds init = std::chrono::minutes(10);  ///< all ranks come together
  /// A call is handed to the GPU; the first between two ranks also connects them.
  std::chrono::milliseconds launch = std::chrono::minutes(30);
  std::chrono::milliseconds transfer = std::chrono::minutes(30);  ///< some transfer ends: NcclWatch
  std::chrono::milliseconds barrier = std::chrono::minutes(30);   ///< all started calls are over
  std::chrono::milliseconds finalize = std::chrono::minutes(1);   ///< then it is aborted
};

class NcclWatch;

/// The NCCL functions and streams of one GPU.
struct NcclBackend {
  NcclFunctions nccl;
  GpuStreams streams;
  std::weak_ptr<NcclWatch> watch = {};  ///< watch over all transfers; default: none
};

/// The functions for this GPU from the plug-in, which has to be loaded (runtime/device/device.h).
/// Call once per process: each backend has a communication stream of its own. Makes no NCCL
/// communicator yet. Throws CommError if the plug-in is not loaded.
std::shared_ptr<NcclBackend> nccl_backend(c10::Device gpu);

/// Symbol that the plug-in exports for nccl_backend.
inline constexpr const char* kMakeNcclBackend = "shoal_make_nccl_backend";
using MakeNcclBackend = void (*)(int ordinal, NcclBackend* backend);

/// `2.28.9` of 22809.
std::string nccl_version_text(int version);

/// Version of the loaded library. Throws CommError if the call fails.
int nccl_version(const NcclFunctions& nccl);

/// Throws CommError if the library is older than the header's major.minor, or if LibTorch uses
/// another file.
void check_nccl_library(const NcclFunctions& nccl);

/// For the log: `NCCL 2.28.9 from /usr/lib/libnccl.so.2, built with 2.28.9`.
std::string nccl_log_line(const NcclFunctions& nccl);

/// Environment variables that must be set before the first communicator is made.
///
/// Two ranks on one GPU (recipe key parallel.share_gpu) need NCCL_MULTI_RANK_GPU_ENABLE=1 and NCCL
/// 2.30 or newer; with an older one throws Error (kTopology) that names both.
std::vector<std::pair<std::string, std::string>> nccl_environment(bool share_gpu, int version);

}  // namespace shoal
