#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/base/signals.h"

namespace shoal {

/// Makes the items make(first), make(first + 1), ... ahead of time in one thread, at most `depth`
/// of them waiting. With depth 0 there is no thread, and `next` makes the item. Torch-free.
template <class Item>
class Prefetcher {
 public:
  using Make = std::function<Item(int64_t index)>;

  /// Throws Error (exit 11) if the system refuses the thread.
  Prefetcher(Make make, int64_t first, int64_t depth)
      : make_(std::move(make)), index_(first), depth_(static_cast<size_t>(depth)) {
    if (depth > 0) thread_ = start_thread("data.prefetch", [this] { run(); });
  }

  /// Waits for the item being made, then drops it and all ready ones.
  ~Prefetcher() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next item in order. An exception of `make` is thrown in its place, and by all later calls.
  Item next() {
    if (depth_ == 0) {
      Item item = make_(index_);
      ++index_;
      return item;
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ready_.empty() || failure_; });
    if (ready_.empty()) std::rethrow_exception(failure_);
    Item item = std::move(ready_.front());
    ready_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return item;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_stopping_ || ready_.size() < depth_; });
      if (is_stopping_) return;
      lock.unlock();
      try {
        Item item = make_(index_++);
        lock.lock();
        ready_.push_back(std::move(item));
      } catch (...) {
        if (!lock.owns_lock()) lock.lock();
        failure_ = std::current_exception();
        changed_.notify_all();
        return;
      }
      changed_.notify_all();
    }
  }

  Make make_;
  int64_t index_;
  size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> ready_;
  std::exception_ptr failure_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace shoal
