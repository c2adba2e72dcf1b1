#include "runtime/device/device_copy.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>

namespace shoal {
namespace {

std::atomic<int64_t> wait_count{0};

}  // namespace

torch::Tensor send_to(const torch::Tensor& host, c10::Device device) {
  return device.is_cuda() ? host.pin_memory().to(device, /*non_blocking=*/true) : host;
}

torch::Tensor send_to(const std::vector<int64_t>& values, c10::Device device) {
  return send_to(torch::tensor(values, torch::kInt64), device);
}

QueuedWork::QueuedWork(c10::Device device) : done_(device.type()) {
  done_.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

void QueuedWork::wait() {
  const c10::DeviceGuard guard(done_.device());  // else a thread without a device takes the first
  done_.synchronize();
  ++wait_count;
}

HostCopy::HostCopy(const torch::Tensor& tensor) {
  if (!tensor.is_cuda()) {
    host_ = tensor.contiguous();
    return;
  }
  const torch::NoGradGuard no_grad;
  host_ =
      torch::empty(tensor.sizes(), torch::TensorOptions(tensor.scalar_type()).pinned_memory(true));
  host_.copy_(tensor, /*non_blocking=*/true);
  copy_.emplace(tensor.device());
}

const torch::Tensor& HostCopy::wait() {
  if (copy_) copy_->wait();
  copy_.reset();
  return host_;
}

int64_t HostCopy::num_waits() { return wait_count; }

}  // namespace shoal
