#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "parallel/nccl/nccl_link.h"

namespace shoal {

/// Polls the NCCL calls of this process on a thread, like PyTorch's NCCL watchdog. Without it a
/// host that waits for the GPU, or inside NCCL, would hang forever after a peer has died.
///
/// A transfer has failed if NCCL reports an error, or if no transfer has completed for
/// NcclLimits::transfer. A call of the host's into NCCL has failed if it does not return within its
/// limit. Time in which this process was suspended does not count. From then on
/// Communicator::throw_if_failed throws. The watch calls `on_failure`, which has to end the job,
/// once for each communicator. If that returns, the watch aborts the communicator, which frees the
/// GPU and a thread that is blocked in NCCL; buffers are then unspecified. An abort may block.
class NcclWatch {
 public:
  using OnFailure = std::function<void(const std::exception_ptr& error)>;
  /// `on_failure` is called on the watching thread. `period`: time between two polls.
  explicit NcclWatch(OnFailure on_failure,
                     std::chrono::milliseconds period = std::chrono::milliseconds(200));
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  /// Watches a call that the host is about to make into NCCL, which may block, until the result is
  /// destroyed: the call has failed if that takes longer than `limit`.
  std::shared_ptr<void> enter(NcclLink& link, const NcclCall& call,
                              std::chrono::milliseconds limit);
  /// Adds a transfer. `link`: its communicator; `call`: its description in errors; `finished`: the
  /// event behind it. Call in the order in which transfers are queued on their stream.
  void add(NcclLink& link, const NcclCall& call, const GpuEvent& finished);
  /// Removes a link's transfers. Call before the link is destroyed; none is being polled on return.
  void forget(const NcclLink& link);

 private:
  struct Watched {
    NcclLink* link;
    NcclCall call;
    std::chrono::milliseconds limit;
    GpuEvent finished;  ///< behind a transfer; null: a call that the host is in
    /// Time, in periods, since the call was added or, if that was later, a transfer completed.
    std::chrono::milliseconds waited{0};
  };
  void run();
  std::optional<NcclFailure> next_failure();

  OnFailure on_failure_;
  std::chrono::milliseconds period_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;
  std::list<Watched> calls_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace shoal
