#include "parallel/nccl_watch.h"

#include <utility>

namespace shoal {

NcclWatch::NcclWatch(OnFailure on_failure, std::chrono::milliseconds period)
    : on_failure_(std::move(on_failure)), period_(period), thread_([this] { run(); }) {}

NcclWatch::~NcclWatch() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void NcclWatch::add(const std::shared_ptr<NcclLink>& link, const NcclCall& call,
                    const GpuEvent& landed) {
  const std::lock_guard lock(mutex_);
  transfers_.push_back({link, call, landed, std::chrono::steady_clock::now()});
}

void NcclWatch::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, period_, [this] { return stops_; })) {
    while (!transfers_.empty()) {
      const Transfer first = transfers_.front();
      // Others may add while NCCL is asked.
      lock.unlock();
      bool is_over = true;
      try {
        const std::shared_ptr<NcclLink> link = first.link.lock();
        is_over = link == nullptr || link->is_over(first.call, first.landed, first.start);
      } catch (...) {
        on_failure_(std::current_exception());
      }
      lock.lock();
      // The stream goes on in order: those behind one that is on its way are so too.
      if (!is_over || stops_) break;
      transfers_.pop_front();
    }
  }
}

}  // namespace shoal
