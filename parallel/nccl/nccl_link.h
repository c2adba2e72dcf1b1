#pragma once

#include <chrono>
#include <cstdint>
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
};

/// Owner of one ncclComm_t: connects it, turns NCCL's errors and time limits into CommError, and
/// destroys or aborts it. Shared by a Communicator and its collectives in flight.
///
/// To start a collective: take the lock busy(), call check_alive(), call NCCL with comm() and
/// stream(), pass results to check(), call settle(), record an event on stream(), unlock. Call
/// poll() before a stream waits for the event. Only comm(), check_alive(), check() and settle()
/// need busy(). NcclWatch, a polling thread, calls is_over() until NcclWatch::forget().
class NcclLink {
 public:
  /// Collective over `control` (for CPU tensors): shares rank 0's NCCL id and connects. Throws
  /// CommError if NCCL is too old or cannot connect, Error (exit 14) if versions differ.
  NcclLink(Communicator& control, std::shared_ptr<const NcclBackend> backend,
           const NcclLimits& limits);
  /// Destroys the communicator; aborts it if that fails or an exception unwinds the stack.
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  const NcclFunctions& nccl() const { return backend_->nccl; }
  const NcclBackend& backend() const { return *backend_; }
  const GpuStreams& streams() const { return backend_->streams; }
  NcclComm* comm() const { return comm_; }  ///< null after a failure or abort
  GpuStream* stream() const { return backend_->streams.communication; }  ///< of all transfers

  std::unique_lock<std::recursive_mutex> busy() { return std::unique_lock(mutex_); }  ///< locked

  // `call` is for messages only. When a method below throws, the NCCL communicator is aborted.
  /// True if the GPU has reached `finished`, the event queued behind `call`, or if the link failed
  /// before. False, without a check, while another thread holds busy(). Throws CommError on an NCCL
  /// error, or if `waited`, the time since the last transfer ended, exceeds NcclLimits::transfer.
  bool is_over(const NcclCall& call, const GpuEvent& finished, std::chrono::milliseconds waited);
  /// Throws CommError if the link failed before.
  void check_alive(const NcclCall& call) const;
  /// Throws CommError if `result`, returned by NCCL's `function`, is an error.
  void check(NcclResult result, const char* function, const NcclCall& call);
  /// Blocks until NCCL has queued a call. Throws CommError on errors or after NcclLimits::launch.
  void settle(const NcclCall& call) { settle(call, limits_.launch); }
  /// Throws CommError if the link failed before or NCCL reports an error of any call so far.
  void poll(const NcclCall& call);
  /// Blocks until `event` is reached. Throws CommError on errors or after NcclLimits::barrier.
  void drain(const GpuEvent& event, const NcclCall& call);
  /// Aborts the NCCL communicator with all calls in flight. Later calls throw CommError.
  void abort() noexcept;

 private:
  void connect(const NcclId& id);
  template <typename Done>
  void wait(const NcclCall& call, std::chrono::milliseconds limit, const Done& done);
  void settle(const NcclCall& call, std::chrono::milliseconds limit);
  NcclResult state(const NcclCall& call);
  bool finalize() noexcept;
  [[noreturn]] void fail(const NcclCall& call, const std::string& what);
  [[noreturn]] void time_out(const NcclCall& call, std::chrono::milliseconds limit);
  std::string where(const NcclCall& call) const;

  std::recursive_mutex mutex_;
  std::shared_ptr<const NcclBackend> backend_;
  NcclLimits limits_;
  int rank_;
  int size_;
  NcclComm* comm_ = nullptr;
  std::string failure_;
};

}  // namespace shoal
