#pragma once

#include <chrono>
#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/nccl/nccl_functions.h"

namespace shoal {

/// Time limits of the host's waits for NCCL, after which the group is given up. There is no recipe
/// key: they are far longer than a save, an evaluation or a slow peer takes. MPI has no limits.
struct NcclLimits {
  std::chrono::milliseconds init = std::chrono::minutes(10);  ///< all ranks connect
  /// A call is handed to the GPU; the first call between two ranks also connects them.
  std::chrono::milliseconds launch = std::chrono::minutes(30);
  std::chrono::milliseconds transfer = std::chrono::minutes(30);  ///< a transfer ends: NcclWatch
  std::chrono::milliseconds barrier = std::chrono::minutes(30);   ///< all started calls complete
  std::chrono::milliseconds finalize = std::chrono::minutes(1);   ///< shutdown; then it is aborted
};

/// Collective over `control`. A communicator of the same ranks that moves GPU memory by NCCL.
///
/// Buffers live on the GPU of `backend`; other tensors are refused with TORCH_CHECK. Control data
/// (counts on the host, gather_text, broadcast_text) goes through a communicator on CPU tensors,
/// such as the one `control` was split from. `control` carries NCCL's id, splits, barrier() and
/// abort(). bfloat16 is reduced, too; NCCL adds it up in bfloat16.
///
/// Calls are ordered on streams and never block the host for the GPU: start_* queues the transfer
/// on the communication stream, after the current stream's work so far; wait() makes the current
/// stream wait for it. The buffers are held until wait(). After it they may be freed or written to
/// by work on the stream that was current at the start or at the wait: both wait. A buffer that was
/// allocated on a third stream must outlive that stream's later allocations.
///
/// A failure that NCCL reports is thrown as CommError by the next start_*, wait() or barrier(),
/// with the call's number, rank, row counts and NCCL's text. The communicator is aborted first
/// (ncclCommAbort), so that this process does not hang; every later call fails likewise. Peers fail
/// through abort(). A peer that does not answer is detected by barrier(), and by the backend's
/// NcclWatch while the host waits for the GPU.
///
/// Throws CommError if the library is too old or cannot connect, Error (kVersionSkew) if rank 0
/// runs another version.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> control,
                                                     std::shared_ptr<const NcclBackend> backend,
                                                     const NcclLimits& limits = {});

}  // namespace shoal
