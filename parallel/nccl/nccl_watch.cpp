#include "parallel/nccl/nccl_watch.h"

#include <set>
#include <utility>

#include "runtime/base/signals.h"

namespace shoal {
namespace {

constexpr std::chrono::milliseconds kNoTime{0};

}  // namespace

NcclWatch::NcclWatch(OnFailure on_failure, std::chrono::milliseconds period)
    : on_failure_(std::move(on_failure)),
      period_(period),
      thread_(start_thread("the watch over NCCL", [this] { run(); })) {}

NcclWatch::~NcclWatch() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void NcclWatch::add(NcclLink& link, const NcclCall& call, const GpuEvent& finished) {
  const std::lock_guard lock(mutex_);
  transfers_.push_back({&link, call, finished});
}

void NcclWatch::forget(const NcclLink& link) {
  const std::lock_guard lock(mutex_);
  std::erase_if(transfers_, [&](const Transfer& transfer) { return transfer.link == &link; });
  waited_ = kNoTime;
}

void NcclWatch::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, period_, [this] { return stops_; })) {
    waited_ = transfers_.empty() ? kNoTime : waited_ + period_;
    for (Entered& entered : entered_) entered.waited += period_;
    while (const std::exception_ptr error = next_failure()) {
      // What ends the job takes down communicators, which asks to forget them.
      lock.unlock();
      on_failure_(error);
      lock.lock();
    }
  }
}

/// Drops the transfers that are over. Null: no call has failed.
std::exception_ptr NcclWatch::next_failure() {
  std::set<const GpuStream*> busy;  // a stream runs in order: what is behind is in flight, too
  for (auto next = transfers_.begin(); next != transfers_.end();) {
    const auto transfer = next++;
    if (busy.contains(transfer->link->stream())) continue;
    try {
      if (!is_over(*transfer)) {
        busy.insert(transfer->link->stream());
        continue;
      }
      waited_ = kNoTime;
      transfers_.erase(transfer);
    } catch (...) {
      waited_ = kNoTime;
      transfers_.erase(transfer);
      return std::current_exception();
    }
  }
  for (const Entered& entered : entered_) {
    if (entered.waited <= entered.limit || entered.link->has_failed()) continue;
    try {
      entered.link->time_out(*entered.call, entered.limit);
    } catch (...) {
      return std::current_exception();
    }
  }
  return nullptr;
}

bool NcclWatch::is_over(const Transfer& transfer) {
  NcclLink& link = *transfer.link;
  if (link.is_over(transfer.call, transfer.finished)) return true;
  const std::chrono::milliseconds limit = link.backend().limits.transfer;
  if (waited_ > limit) link.time_out(transfer.call, limit);
  return false;
}

std::shared_ptr<void> watch_host_call(NcclLink& link, const NcclCall& call,
                                      std::chrono::milliseconds limit) {
  const auto watch = link.backend().watch.lock();
  return watch ? watch->enter(link, call, limit) : nullptr;
}

std::shared_ptr<void> NcclWatch::enter(NcclLink& link, const NcclCall& call,
                                       std::chrono::milliseconds limit) {
  const std::lock_guard lock(mutex_);
  const auto entered = entered_.insert(entered_.end(), {&link, &call, limit});
  return {nullptr, [self = shared_from_this(), entered](void*) {
            const std::lock_guard lock(self->mutex_);
            self->entered_.erase(entered);
          }};
}

}  // namespace shoal
