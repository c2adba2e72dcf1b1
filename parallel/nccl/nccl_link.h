#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/nccl/nccl_functions.h"

namespace shoal {

/// A collective as error messages describe it: `all_to_all #17`, with its rows.
struct NcclCall {
  std::string name;
  int64_t sequence = 0;  ///< number of the call on its communicator, from 0
  RowCounts send_rows = {};
  RowCounts recv_rows = {};
  int64_t bytes_per_row = 0;
  bool is_setup = false;  ///< init, split or finalize, which run.hang_timeout does not limit
};

/// The end of an NCCL communicator that no call uses any more.
struct NcclFailure {
  std::exception_ptr error;     ///< a CommError
  std::function<void()> abort;  ///< aborts NCCL's communicator; may block, or outlive the link
};

/// Owner of one ncclComm_t: connects it, turns NCCL's errors and time limits into CommError, and
/// destroys or aborts it. Shared by a Communicator and its collectives in flight.
///
/// To start a collective: take lock_launches(), call check_alive(), call NCCL with comm() and
/// stream(), pass its results to check(), record an event on stream(), unlock. Call poll() before
/// a stream waits for the event. NcclWatch, a polling thread, looks at a transfer under the lock
/// too, since an abort frees what the launching thread uses. It does without for a call in which
/// the host is blocked beyond its limit.
class NcclLink {
 public:
  /// Collective over `control` (for CPU tensors): waits for all ranks, shares rank 0's NCCL id and
  /// connects. Throws Error (exit 70) if NCCL is too old, if it cannot connect or if a rank does
  /// not come within NcclLimits::init; Error (exit 14) on all ranks if versions differ.
  NcclLink(Communicator& control, std::shared_ptr<const NcclBackend> backend);
  /// Splits the communicator of `parent`, which must be idle on all ranks. Collective over the
  /// ranks of `parent`. `control`: the ranks of the new communicator; `color`: as in
  /// Communicator::split.
  NcclLink(Communicator& control, NcclLink& parent, int64_t color, Traffic traffic);
  /// Destroys the communicator; aborts it if that fails or an exception unwinds the stack.
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  const NcclBackend& backend() const { return *backend_; }
  const NcclFunctions& nccl() const { return backend_->nccl; }
  const GpuStreams& streams() const { return backend_->streams; }
  Traffic traffic() const { return traffic_; }
  NcclComm* comm() const;  ///< null after a failure or abort
  /// Returns the stream that the transfers are queued on, one for each Traffic.
  GpuStream* stream() const { return streams().communication[static_cast<size_t>(traffic_)]; }

  /// Locks the mutex that orders the launches of all communicators of the process. Hold the result
  /// from the start of a collective until NCCL has queued it.
  std::unique_lock<std::mutex> lock_launches() { return std::unique_lock(backend_->launching); }
  /// True if the link has failed or was aborted.
  bool has_failed() const;

  // `call` is for messages only. When a method below throws, NCCL gets no more calls.
  /// Throws CommError if the link failed before.
  void check_alive(const NcclCall& call) const;
  /// Throws CommError if `result`, returned by NCCL's `function`, is an error.
  void check(NcclResult result, const char* function, const NcclCall& call);
  /// Throws CommError if the link failed before or NCCL reports an error of any call so far.
  void poll(const NcclCall& call);
  /// Blocks until `event` is reached. Throws CommError on errors or after `limit`.
  void drain(const GpuEvent& event, const NcclCall& call, std::chrono::milliseconds limit);
  /// Returns what NCCL reports of any call so far; empty if that is no error.
  std::string reported_error() const;
  /// Returns the error of a call that is still in progress after `limit`.
  static std::string describe_timeout(std::chrono::milliseconds limit);
  /// Fails the link: later calls throw CommError that says why. The caller has to abort.
  NcclFailure give_up(const NcclCall& call, const std::string& what);
  /// Aborts the NCCL communicator with all calls in flight. Later calls throw CommError.
  void abort(const std::string& why = "it was aborted") noexcept;

 private:
  /// Calls `function`, NCCL's of this name, which may block the host for at most `limit`.
  template <typename Function>
  void call_nccl(const NcclCall& call, const char* name, std::chrono::milliseconds limit,
                 const Function& function);
  NcclComm* take_comm(const std::string& why) noexcept;
  bool finalize() noexcept;
  [[noreturn]] void fail(const NcclCall& call, const std::string& what);
  std::string describe(NcclResult result, const char* function) const;

  std::shared_ptr<const NcclBackend> backend_;
  Traffic traffic_ = Traffic::kControl;
  int rank_;
  int size_;
  mutable std::mutex mutex_;  ///< for the two below; never held while NCCL may block
  NcclComm* comm_ = nullptr;
  std::string failure_;
};

/// Watches a call that the host is about to make into NCCL, until the result is destroyed: the
/// watch of the link's backend fails the link after `limit`. Null without a watch.
std::shared_ptr<void> watch_host_call(NcclLink& link, const NcclCall& call,
                                      std::chrono::milliseconds limit);

}  // namespace shoal
