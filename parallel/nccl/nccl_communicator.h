#pragma once

#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/nccl/nccl_functions.h"

namespace shoal {

/// Makes a communicator of the ranks of `control` that moves GPU memory by NCCL. Collective.
///
/// `control`: for CPU tensors; used for NCCL's unique id, split(), barrier() and abort(). The calls
/// continue its list of calls (CallOrder).
/// `backend`: NCCL and the streams of this rank's GPU.
///
/// Buffers must be on the GPU of `backend` (TORCH_CHECK). Control data (counts on the host,
/// gather_text) needs a CPU communicator. bfloat16 is reduced too, in bfloat16.
///
/// start_* and wait() do not make the host wait for the GPU, except that the first call between two
/// ranks connects them. start_* queues the transfer on the communication stream of the group's
/// Traffic, after the current stream's work so far. One lock orders the launches of all groups of
/// the process. A transfer of gradients starts behind the exchange that was queued last.
/// wait() makes two streams wait for the transfer: the one current at start_* and the one current
/// at wait(). Buffers are kept until wait(); then they may be freed, or overwritten by work on
/// these two streams. Keep a buffer that was allocated on a third stream until that stream, too,
/// waits for the transfer; otherwise the allocator could hand out its memory too early.
///
/// A failure that NCCL reports is thrown as CommError by the next start_*, wait() or barrier(),
/// with the call's number, rank, row counts and NCCL's text. The communicator is aborted first
/// (ncclCommAbort), so that this process does not hang, and every later call throws too. Peers are
/// not told: the caller has to end the job by abort(). A peer that does not answer is detected by
/// barrier() and, while the host waits for the GPU or in NCCL, by the backend's NcclWatch (a
/// polling thread).
///
/// Throws Error (exit 70) if NCCL is too old or cannot connect, (exit 14) if versions differ.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> control,
                                                     std::shared_ptr<const NcclBackend> backend);

}  // namespace shoal
