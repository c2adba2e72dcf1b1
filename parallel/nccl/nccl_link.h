#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/nccl/nccl_functions.h"

namespace shoal {

/// A call as errors describe it: `all_to_all #17`, with its rows.
struct NcclCall {
  std::string name;
  int64_t sequence = 0;
  RowCounts send_rows = {};
  RowCounts recv_rows = {};
  int64_t bytes_per_row = 0;
};

/// One NCCL communicator: made, watched, and taken down. Shared by a Communicator and its calls in
/// flight. The backend's NcclWatch calls is_over() until it has forgotten the link; all other
/// callers hold busy().
class NcclLink {
 public:
  /// Collective over `control`: shares rank 0's id and connects. Throws as make_nccl_communicator.
  NcclLink(Communicator& control, std::shared_ptr<const NcclBackend> backend,
           const NcclLimits& limits);
  /// Finalizes and destroys; aborts where that fails or while an exception unwinds the stack.
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  const NcclFunctions& nccl() const { return backend_->nccl; }
  const NcclBackend& backend() const { return *backend_; }
  const GpuStreams& streams() const { return backend_->streams; }
  NcclComm* comm() const { return comm_; }
  /// Carries the transfers.
  GpuStream* stream() const { return backend_->streams.communication; }

  /// Held from the start of a call until NCCL has queued it.
  std::unique_lock<std::recursive_mutex> busy() { return std::unique_lock(mutex_); }
  /// True once the call is complete: the GPU has reached `finished`, or the link has failed. Throws
  /// CommError as poll, and if the call has exceeded its time limit. False while another thread is
  /// busy with the link and polls it.
  bool is_over(const NcclCall& call, const GpuEvent& finished, std::chrono::milliseconds waited);

  /// Throws CommError if the link failed before.
  void check_alive(const NcclCall& call) const;
  /// Throws CommError, and marks the link as failed, if `result` is an error of `function`.
  void check(NcclResult result, const char* function, const NcclCall& call);
  /// Blocks until NCCL has queued everything on the GPU.
  void settle(const NcclCall& call) { settle(call, limits_.launch); }
  /// Throws CommError if NCCL reports an error.
  void poll(const NcclCall& call);
  /// Blocks until the GPU has reached the event.
  void drain(const GpuEvent& event, const NcclCall& call);
  /// Aborts calls in flight; only the destructor may be called afterwards.
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
