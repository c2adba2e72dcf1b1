#include "parallel/nccl/nccl_link.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/error.h"

namespace shoal {
namespace {

/// Collective. Rank 0's id on every rank.
NcclId share_id(Communicator& control, const NcclFunctions& nccl) {
  const std::string text = on_rank_zero(control, [&] {
    NcclId made;
    const NcclResult result = nccl.get_unique_id(&made);
    if (is_error(result)) {
      throw CommError(
          fmt::format("ncclGetUniqueId: {}: {}", nccl.get_error_string(result),
                      nccl.get_last_error(nullptr)),
          "NCCL_DEBUG=INFO shows what NCCL tried; NCCL_SOCKET_IFNAME picks the network");
    }
    return std::string(made.bytes.begin(), made.bytes.end());
  });
  NcclId id;
  std::copy(text.begin(), text.end(), id.bytes.begin());
  return id;
}

}  // namespace

// NCCL's own init has no limit. What is left of it behind the barrier, the watch limits.
NcclLink::NcclLink(Communicator& control, std::shared_ptr<const NcclBackend> backend)
    : backend_(std::move(backend)),
      rank_(static_cast<int>(control.rank())),
      size_(static_cast<int>(control.size())) {
  check_nccl_library(nccl());
  control.barrier(backend_->limits.init);
  require_equal_on_ranks(control, {{"NCCL", nccl_version_text(nccl_version(nccl()))}});
  const NcclId id = share_id(control, nccl());
  NcclComm* made = nullptr;
  call_nccl({.name = "init", .is_setup = true}, "ncclCommInitRankConfig", backend_->limits.init,
            [&] { return nccl().comm_init_rank(&made, size_, id, rank_); });
  comm_ = made;
}

// The key is the rank: `control` has sorted the ranks already.
NcclLink::NcclLink(Communicator& control, NcclLink& parent, int64_t color, Traffic traffic)
    : backend_(parent.backend_),
      traffic_(traffic),
      rank_(static_cast<int>(control.rank())),
      size_(static_cast<int>(control.size())) {
  const NcclCall call{.name = "split", .is_setup = true};
  parent.check_alive(call);
  NcclComm* made = nullptr;
  // Exchanges run one after the other anyway, so they can share buffers.
  const bool shares = traffic == Traffic::kExchange;
  call_nccl(call, "ncclCommSplit", backend_->limits.init, [&] {
    return nccl().comm_split(parent.comm(), static_cast<int>(color), rank_, shares, &made);
  });
  comm_ = made;
}

template <typename Function>
void NcclLink::call_nccl(const NcclCall& call, const char* name, std::chrono::milliseconds limit,
                         const Function& function) {
  NcclResult result = NcclResult::kSuccess;
  {
    const std::shared_ptr<void> watched = watch_host_call(*this, call, limit);
    result = function();
  }
  check(result, name, call);
}

NcclLink::~NcclLink() {
  if (comm() == nullptr) return;
  // Ranks that fail do not come to finalize together.
  if (std::uncaught_exceptions() > 0 || !finalize()) abort();
}

bool NcclLink::finalize() noexcept {
  try {
    call_nccl({.name = "finalize", .is_setup = true}, "ncclCommFinalize", backend_->limits.finalize,
              [&] { return nccl().comm_finalize(comm()); });
    if (NcclComm* const own = take_comm("it was finalized")) nccl().comm_destroy(own);
    return true;
  } catch (const std::exception&) {
    return false;  // aborted by then
  }
}

NcclComm* NcclLink::comm() const {
  const std::lock_guard lock(mutex_);
  return comm_;
}

bool NcclLink::has_failed() const {
  const std::lock_guard lock(mutex_);
  return !failure_.empty();
}

NcclComm* NcclLink::take_comm(const std::string& why) noexcept {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = why;
  return std::exchange(comm_, nullptr);
}

void NcclLink::abort(const std::string& why) noexcept {
  if (NcclComm* const own = take_comm(why)) nccl().comm_abort(own);
}

void NcclLink::check_alive(const NcclCall& call) const {
  const std::lock_guard lock(mutex_);
  if (comm_ != nullptr) return;
  throw CommError(fmt::format("{} #{}: rank {} of {} cannot go on: {}", call.name, call.sequence,
                              rank_, size_, failure_));
}

void NcclLink::check(NcclResult result, const char* function, const NcclCall& call) {
  if (!is_error(result)) return;
  if (has_failed()) check_alive(call);  // NCCL's error is the abort's, which had another cause
  fail(call, describe(result, function));
}

// NCCL does not use the argument, which another thread may have freed.
std::string NcclLink::describe(NcclResult result, const char* function) const {
  const std::string detail = nccl().get_last_error(nullptr);
  return std::string(function) + ": " + nccl().get_error_string(result) +
         (detail.empty() ? "" : ": " + detail);
}

// Under the lock, so that no other thread frees the communicator meanwhile.
std::string NcclLink::reported_error() const {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return "";
  NcclResult state = NcclResult::kSuccess;
  const NcclResult result = nccl().comm_get_async_error(comm_, &state);
  if (is_error(result)) state = result;
  return is_error(state) ? describe(state, "reported by ncclCommGetAsyncError") : "";
}

void NcclLink::poll(const NcclCall& call) {
  const std::string error = reported_error();
  check_alive(call);
  if (!error.empty()) fail(call, error);
}

void NcclLink::drain(const GpuEvent& event, const NcclCall& call, std::chrono::milliseconds limit) {
  const auto start = std::chrono::steady_clock::now();
  while (poll(call), !streams().is_done(event)) {
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - start);
    if (waited > limit) fail(call, describe_timeout(limit));
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

NcclFailure NcclLink::give_up(const NcclCall& call, const std::string& what) {
  const std::string rows = call.send_rows.empty()
                               ? ""
                               : fmt::format(" (send {}, receive {} rows of {} bytes)",
                                             call.send_rows, call.recv_rows, call.bytes_per_row);
  const std::string failure = fmt::format("{} #{} failed on rank {} of {}{}: {}", call.name,
                                          call.sequence, rank_, size_, rows, what);
  std::string hint =
      "a peer may have died or called something else; look at its log, and at NCCL's with "
      "NCCL_DEBUG=INFO";
  if (!call.is_setup) hint += "; run.hang_timeout sets how long a peer may take";
  return {std::make_exception_ptr(CommError(failure, hint)),
          [abort = nccl().comm_abort, own = take_comm(failure)] {
            if (own != nullptr) abort(own);
          }};
}

void NcclLink::fail(const NcclCall& call, const std::string& what) {
  const NcclFailure failure = give_up(call, what);
  failure.abort();
  std::rethrow_exception(failure.error);
}

std::string NcclLink::describe_timeout(std::chrono::milliseconds limit) {
  return fmt::format("still in progress after {} s", std::chrono::duration<double>(limit).count());
}

}  // namespace shoal
