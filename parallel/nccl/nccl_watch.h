#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "parallel/nccl/nccl_link.h"

namespace shoal {

/// Polls the NCCL transfers of this process on a thread, like PyTorch's NCCL watchdog. Without it a
/// host that waits for the GPU would hang forever after a peer has died.
///
/// A transfer has failed if NCCL reports an error, or if no transfer has completed for
/// NcclLimits::transfer; time in which this process was suspended does not count. The watch then
/// aborts the transfer's communicator, which frees the GPU, and calls `on_failure`, which has to
/// end the job, once for each communicator. Buffers are then unspecified, and
/// Communicator::throw_if_failed throws.
class NcclWatch {
 public:
  using OnFailure = std::function<void(const std::exception_ptr& error)>;
  /// `on_failure` is called on the watching thread. `period`: time between two polls.
  explicit NcclWatch(OnFailure on_failure,
                     std::chrono::milliseconds period = std::chrono::milliseconds(200));
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  /// Adds a transfer. `link`: its communicator; `call`: its description in errors; `finished`: the
  /// event behind it. Call in the order in which transfers are queued on their stream.
  void add(NcclLink& link, const NcclCall& call, const GpuEvent& finished);
  /// Removes a link's transfers. Call before the link is destroyed; none is being polled on return.
  void forget(const NcclLink& link);

 private:
  struct Transfer {
    NcclLink* link;
    NcclCall call;
    GpuEvent finished;
  };
  void run();
  std::exception_ptr drop_those_over();

  OnFailure on_failure_;
  std::chrono::milliseconds period_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;
  std::deque<Transfer> transfers_;
  std::chrono::milliseconds waited_{0};  ///< time waited for the first transfer, in periods
  std::thread thread_;                   // last: it uses the others
};

}  // namespace shoal
