#include "parallel/nccl/nccl_link.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "runtime/base/error.h"

namespace shoal {
namespace {

using Clock = std::chrono::steady_clock;

/// What rank 0 sends: its version, a blank, the id's bytes. Empty: it has none.
std::string id_text(const NcclFunctions& nccl, NcclResult& result) {
  NcclId id;
  result = nccl.get_unique_id(&id);
  if (is_error(result)) return "";
  return std::to_string(nccl_version(nccl)) + " " + std::string(id.bytes.data(), id.bytes.size());
}

void check_same_version(const NcclFunctions& nccl, int rank, int version_of_first) {
  const int own = nccl_version(nccl);
  if (own == version_of_first) return;
  throw Error(
      ExitCode::kVersionSkew,
      fmt::format("NCCL: rank {} loads version {} ({}), rank 0 loads {}", rank,
                  nccl_version_text(own), nccl.library_file, nccl_version_text(version_of_first)),
      "install the same NCCL on every machine");
}

/// Collective. Rank 0's id on every rank, and one version of NCCL everywhere.
NcclId share_id(Communicator& control, const NcclFunctions& nccl) {
  NcclResult result = NcclResult::kSuccess;
  std::string text;
  // A rank 0 that fails sends an empty text, or the others would wait for it.
  if (control.rank() == 0) text = id_text(nccl, result);
  text = broadcast_text(control, std::move(text));
  if (text.empty()) {
    throw CommError(control.rank() == 0
                        ? "ncclGetUniqueId: " + nccl.get_error_string(result) + ": " +
                              nccl.get_last_error(nullptr)
                        : "ncclGetUniqueId: rank 0 of " + std::to_string(control.size()) +
                              " could not make an id; see its log",
                    "NCCL_DEBUG=INFO shows what NCCL tried; NCCL_SOCKET_IFNAME picks the network");
  }
  const size_t blank = text.find(' ');
  check_same_version(nccl, static_cast<int>(control.rank()), std::stoi(text.substr(0, blank)));
  NcclId id;
  TORCH_CHECK(text.size() - blank - 1 == id.bytes.size(), "ncclGetUniqueId: rank 0 sent ",
              text.size() - blank - 1, " bytes, expected ", id.bytes.size());
  std::copy(text.begin() + static_cast<std::ptrdiff_t>(blank) + 1, text.end(), id.bytes.begin());
  return id;
}

}  // namespace

NcclLink::NcclLink(Communicator& control, std::shared_ptr<const NcclBackend> backend,
                   const NcclLimits& limits)
    : backend_(std::move(backend)),
      limits_(limits),
      rank_(static_cast<int>(control.rank())),
      size_(static_cast<int>(control.size())) {
  check_nccl_library(nccl());
  connect(share_id(control, nccl()));
}

void NcclLink::connect(const NcclId& id) {
  const NcclCall call{.name = "init"};
  check(nccl().comm_init_rank(&comm_, size_, id, rank_), "ncclCommInitRankConfig", call);
  settle(call, limits_.init);
}

NcclLink::~NcclLink() {
  const auto turn = busy();
  if (comm_ == nullptr) return;
  // Ranks that fail do not come to finalize together.
  if (std::uncaught_exceptions() > 0 || !finalize()) abort();
}

bool NcclLink::finalize() noexcept {
  try {
    const NcclCall call{.name = "finalize"};
    check(nccl().comm_finalize(comm_), "ncclCommFinalize", call);
    settle(call, limits_.finalize);
    nccl().comm_destroy(std::exchange(comm_, nullptr));
    return true;
  } catch (const std::exception&) {
    return false;  // aborted by then
  }
}

void NcclLink::abort() noexcept {
  const auto turn = busy();
  if (comm_ != nullptr) nccl().comm_abort(std::exchange(comm_, nullptr));
  if (failure_.empty()) failure_ = "it was aborted";
}

void NcclLink::check_alive(const NcclCall& call) const {
  if (comm_ != nullptr) return;
  throw CommError(
      fmt::format("{}: rank {} of {} cannot go on: {}", where(call), rank_, size_, failure_));
}

void NcclLink::check(NcclResult result, const char* function, const NcclCall& call) {
  if (!is_error(result)) return;
  std::string what = std::string(function) + ": " + nccl().get_error_string(result);
  const std::string detail = nccl().get_last_error(comm_);
  if (!detail.empty()) what += ": " + detail;
  fail(call, what);
}

NcclResult NcclLink::state(const NcclCall& call) {
  check_alive(call);
  NcclResult state = NcclResult::kSuccess;
  check(nccl().comm_get_async_error(comm_, &state), "ncclCommGetAsyncError", call);
  check(state, "reported by ncclCommGetAsyncError", call);
  return state;
}

void NcclLink::poll(const NcclCall& call) {
  const auto turn = busy();
  state(call);
}

bool NcclLink::is_over(const NcclCall& call, const GpuEvent& finished,
                       std::chrono::milliseconds waited) {
  const std::unique_lock turn(mutex_, std::try_to_lock);
  if (!turn.owns_lock()) return false;
  if (comm_ == nullptr || streams().is_done(finished)) return true;
  state(call);
  if (waited > limits_.transfer) time_out(call, limits_.transfer);
  return false;
}

// Most of NCCL's background work takes microseconds, some takes seconds.
template <typename Done>
void NcclLink::wait(const NcclCall& call, std::chrono::milliseconds limit, const Done& done) {
  constexpr int kQuickTurns = 200;
  const auto deadline = Clock::now() + limit;
  for (int turn = 0; !done(); ++turn) {
    if (Clock::now() > deadline) time_out(call, limit);
    if (turn < kQuickTurns) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

void NcclLink::settle(const NcclCall& call, std::chrono::milliseconds limit) {
  wait(call, limit, [&] { return state(call) != NcclResult::kInProgress; });
}

void NcclLink::drain(const GpuEvent& event, const NcclCall& call) {
  wait(call, limits_.barrier, [&] {
    poll(call);
    return streams().is_done(event);
  });
}

void NcclLink::fail(const NcclCall& call, const std::string& what) {
  const std::string rows = call.send_rows.empty()
                               ? ""
                               : fmt::format(" (send {}, receive {} rows of {} bytes)",
                                             call.send_rows, call.recv_rows, call.bytes_per_row);
  failure_ = fmt::format("{} failed on rank {} of {}{}: {}", where(call), rank_, size_, rows, what);
  abort();
  throw CommError(failure_,
                  "a peer may have died or called something else; look at its log, and at NCCL's "
                  "with NCCL_DEBUG=INFO; run.hang_timeout sets how long a peer may take");
}

void NcclLink::time_out(const NcclCall& call, std::chrono::milliseconds limit) {
  fail(call,
       fmt::format("still in progress after {} s", std::chrono::duration<double>(limit).count()));
}

std::string NcclLink::where(const NcclCall& call) const {
  return fmt::format("{} #{}", call.name, call.sequence);
}

}  // namespace shoal
