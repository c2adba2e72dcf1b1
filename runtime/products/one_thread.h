#pragma once

namespace shoal {

/// Limits OpenMP to the calling thread while it lives.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_;
};

}  // namespace shoal
