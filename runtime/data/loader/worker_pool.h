#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace shoal {

/// Threads that process the samples of a batch. Torch-free.
class WorkerPool {
 public:
  /// `workers`: threads that work, the caller of for_each included, so 1 starts no thread. If the
  /// system refuses a thread, continues with fewer if `may_be_fewer`, else throws Error (exit 11).
  explicit WorkerPool(int64_t workers, bool may_be_fewer = false);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int64_t size() const { return std::ssize(threads_) + 1; }
  /// Calls body(i) for each i in [0, count), in any order, several at once. After all have ended
  /// rethrows the exception of the lowest i. For one caller at a time.
  void for_each(int64_t count, const std::function<void(int64_t)>& body);

 private:
  WorkerPool() = default;
  void run();
  void work(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  const std::function<void(int64_t)>* body_ = nullptr;
  int64_t next_ = 0, count_ = 0, in_work_ = 0;
  int64_t failed_at_ = 0;  ///< index i of failure_
  std::exception_ptr failure_;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace shoal
