#include "parallel/nccl/nccl_watch.h"

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
    while (const std::exception_ptr error = drop_those_over()) {
      // What ends the job takes down communicators, which asks to forget them.
      lock.unlock();
      on_failure_(error);
      lock.lock();
    }
  }
}

// The stream runs in order: transfers after one in flight are in flight too.
std::exception_ptr NcclWatch::drop_those_over() {
  std::exception_ptr error;
  while (!transfers_.empty() && !error) {
    const Transfer& first = transfers_.front();
    try {
      if (!first.link->is_over(first.call, first.finished, waited_)) break;
    } catch (...) {
      error = std::current_exception();
    }
    transfers_.pop_front();
    waited_ = kNoTime;
  }
  return error;
}

}  // namespace shoal
