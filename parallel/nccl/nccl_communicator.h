#pragma once

#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/nccl/nccl_functions.h"

namespace shoal {

/// Makes a communicator of the ranks of `control` that moves GPU memory by NCCL. Collective.
///
/// `control`: for CPU tensors; used for NCCL's unique id, split(), barrier() and abort().
/// `backend`: NCCL and the streams of this rank's GPU. `limits`: times after which a call fails.
///
/// Buffers must be on the GPU of `backend` (TORCH_CHECK). Control data (counts on the host,
/// gather_text) needs a CPU communicator. bfloat16 is reduced too, in bfloat16.
///
/// Calls never block the host for the GPU: start_* queues the transfer on the communication stream,
/// after the current stream's work so far; wait() makes the current stream wait for it. The buffers
/// are kept until wait(). From then on they may be freed, or written to by work on the stream that
/// was current at start_* or at wait(): both streams wait. Keep a buffer that was
/// allocated on a third stream until that stream waits for the transfer, too: its memory could
/// otherwise be handed out there again.
///
/// A failure that NCCL reports is thrown as CommError by the next start_*, wait() or barrier(),
/// with the call's number, rank, row counts and NCCL's text. The communicator is aborted first
/// (ncclCommAbort), so that this process does not hang, and every later call throws too. Peers
/// learn of it through abort(). A peer that does not answer is detected by barrier(), and by the
/// backend's NcclWatch (a thread that polls transfers) while the host waits for the GPU.
///
/// Throws CommError if NCCL is too old or cannot connect, Error (exit 14) if versions differ.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> control,
                                                     std::shared_ptr<const NcclBackend> backend,
                                                     const NcclLimits& limits = {});

}  // namespace shoal
