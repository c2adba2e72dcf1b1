#pragma once

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "tests/support/emulated_gpu/streams.h"

namespace c10::cuda {

class CUDAStream {
 public:
  explicit CUDAStream(const Stream& stream) : stream_(stream) {}
  CUstream_st* stream() const { return emulated_gpu::handle_of(stream_.id()); }
  const Stream& unwrap() const { return stream_; }
  operator Stream() const { return stream_; }
  bool query() const { return stream_.query(); }
  void synchronize() const { stream_.synchronize(); }

 private:
  Stream stream_;
};

/// `device`: index, or -1 for the current one.
inline CUDAStream getCurrentCUDAStream(DeviceIndex device = -1) {
  return CUDAStream(impl::VirtualGuardImpl(kCUDA).getStream({kCUDA, device}));
}
inline CUDAStream getStreamFromPool(bool has_high_priority = false, DeviceIndex device = -1) {
  return CUDAStream(
      impl::VirtualGuardImpl(kCUDA).getStreamFromGlobalPool({kCUDA, device}, has_high_priority));
}

}  // namespace c10::cuda
