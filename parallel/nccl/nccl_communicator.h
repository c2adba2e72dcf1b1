#pragma once

#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/nccl/nccl_functions.h"

namespace shoal {

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
