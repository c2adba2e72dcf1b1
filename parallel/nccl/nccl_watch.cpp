#include "parallel/nccl/nccl_watch.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "runtime/base/signals.h"

namespace shoal {

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
  calls_.push_back({&link, call, link.backend().limits.transfer, finished});
}

void NcclWatch::forget(const NcclLink& link) {
  const std::lock_guard lock(mutex_);
  std::erase_if(calls_, [&](const Watched& call) { return call.link == &link && call.finished; });
}

void NcclWatch::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, period_, [this] { return stops_; })) {
    for (Watched& call : calls_) call.waited += period_;
    while (const std::optional<NcclFailure> failure = next_failure()) {
      // What ends the job takes down communicators, which asks to forget them. An abort may block.
      lock.unlock();
      on_failure_(failure->error);
      failure->abort();
      lock.lock();
    }
  }
}

/// Drops the transfers that are over.
std::optional<NcclFailure> NcclWatch::next_failure() {
  const auto is_stuck = [&](const Watched& c) { return !c.finished && c.waited > 50 * period_; };
  std::set<const GpuStream*> busy;  // a stream runs in order: what is behind is in flight, too
  for (auto next = calls_.begin(); next != calls_.end();) {
    const auto call = next++;
    NcclLink& link = *call->link;
    if (link.has_failed() || (call->finished && busy.contains(link.stream()))) continue;
    try {
      if (call->finished && link.streams().is_done(call->finished)) {
        for (Watched& other : calls_) other.waited = {};
        calls_.erase(call);
        continue;
      }
    } catch (...) {
      calls_.erase(call);
      return NcclFailure{std::current_exception(), [] {}};
    }
    std::unique_lock<std::mutex> turn;
    std::string what;
    if (call->finished) {
      busy.insert(link.stream());
      turn = std::unique_lock(link.backend().launching, std::try_to_lock);
      if (!turn && std::ranges::none_of(calls_, is_stuck)) continue;  // in use: next time
      what = link.reported_error();
    }
    if (what.empty() && call->waited > call->limit) what = link.describe_timeout(call->limit);
    if (!what.empty()) return link.give_up(call->call, what);
  }
  return std::nullopt;
}

std::shared_ptr<void> watch_host_call(NcclLink& link, const NcclCall& call,
                                      std::chrono::milliseconds limit) {
  const auto& watch = link.backend().watch;
  return watch ? watch->enter(link, call, limit) : nullptr;
}

std::shared_ptr<void> NcclWatch::enter(NcclLink& link, const NcclCall& call,
                                       std::chrono::milliseconds limit) {
  const std::lock_guard lock(mutex_);
  const auto entered = calls_.insert(calls_.end(), {&link, call, limit, nullptr});
  return {nullptr, [this, entered](void*) {
            const std::lock_guard lock(mutex_);
            calls_.erase(entered);
          }};
}

}  // namespace shoal
