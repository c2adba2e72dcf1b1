#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "parallel/nccl/nccl_link.h"

namespace shoal {

/// Polls the transfers of a process until they are over, on a thread of its own: the host sleeps in
/// CUDA while it waits for the GPU, and would sleep for ever after a transfer whose peer has died.
///
/// A failure aborts the communicator that it belongs to, so that the GPU is free again, and is
/// reported once. So does a stream on which for NcclLimits::transfer no transfer has ended; time in
/// which this process was stopped does not count. Buffers are unspecified then, and
/// Communicator::throw_if_failed throws: `on_failure` is to end the job.
class NcclWatch {
 public:
  using OnFailure = std::function<void(const std::exception_ptr& error)>;
  /// `on_failure` is called by the watching thread.
  explicit NcclWatch(OnFailure on_failure,
                     std::chrono::milliseconds period = std::chrono::milliseconds(200));
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  /// `finished` follows the transfer. Transfers are added in the order of their stream.
  void add(NcclLink& link, const NcclCall& call, const GpuEvent& finished);
  /// For a link that is about to go. Returns when none of its transfers is polled any more.
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
  std::chrono::milliseconds waited_{0};  ///< for the first of them, in periods
  std::thread thread_;                   // last: it uses the others
};

}  // namespace shoal
