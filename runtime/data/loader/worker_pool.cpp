#include "runtime/data/loader/worker_pool.h"

#include <exception>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/signals.h"

namespace shoal {

// By another constructor, so that the destructor ends the threads if this one throws.
WorkerPool::WorkerPool(int64_t workers, bool may_be_fewer) : WorkerPool() {
  threads_.reserve(static_cast<size_t>(workers));
  try {
    while (size() < workers) threads_.push_back(start_thread("data.workers", [this] { run(); }));
  } catch (const Error&) {
    if (!may_be_fewer) throw;
  }
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::for_each(int64_t count, const std::function<void(int64_t)>& body) {
  std::unique_lock lock(mutex_);
  body_ = &body;
  next_ = 0;
  count_ = count;
  if (count > 1) begun_.notify_all();
  work(lock);
  ended_.wait(lock, [this] { return in_work_ == 0; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void WorkerPool::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    begun_.wait(lock, [this] { return is_stopping_ || next_ < count_; });
    if (is_stopping_) return;
    work(lock);
  }
}

void WorkerPool::work(std::unique_lock<std::mutex>& lock) {
  while (next_ < count_) {
    const int64_t index = next_++;
    ++in_work_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      (*body_)(index);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure && (!failure_ || index < failed_at_)) {
      failure_ = failure;
      failed_at_ = index;
    }
    if (--in_work_ == 0 && next_ >= count_) ended_.notify_all();
  }
}

}  // namespace shoal
