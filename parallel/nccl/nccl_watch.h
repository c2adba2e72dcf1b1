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

/// Polls the transfers of a process until they complete, on a thread of its own. Without it, a host
/// that waits for the GPU inside CUDA would hang forever after a peer has died.
///
/// A failure aborts its communicator, which frees the GPU, and is reported once. A stream on which
/// no transfer has completed for NcclLimits::transfer counts as failed; time in which this process
/// was stopped does not count. Buffers are unspecified then, and Communicator::throw_if_failed
/// throws: `on_failure` has to end the job.
class NcclWatch {
 public:
  using OnFailure = std::function<void(const std::exception_ptr& error)>;
  /// `on_failure` is called by the watching thread.
  explicit NcclWatch(OnFailure on_failure,
                     std::chrono::milliseconds period = std::chrono::milliseconds(200));
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  /// `finished` is the event after the transfer. Transfers are added in the order of their stream.
  void add(NcclLink& link, const NcclCall& call, const GpuEvent& finished);
  /// Call before a link is destroyed. Returns when none of its transfers is polled any more.
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
