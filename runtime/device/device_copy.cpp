#include "runtime/device/device_copy.h"

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

HostCopy::HostCopy(const torch::Tensor& tensor) {
  if (!tensor.is_cuda()) {
    host_ = tensor.contiguous();
    return;
  }
  const torch::NoGradGuard no_grad;
  host_ =
      torch::empty(tensor.sizes(), torch::TensorOptions(tensor.scalar_type()).pinned_memory(true));
  host_.copy_(tensor, /*non_blocking=*/true);
  const c10::Device device = tensor.device();
  arrived_.emplace(device.type());
  arrived_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

const torch::Tensor& HostCopy::wait() {
  if (arrived_) {
    arrived_->synchronize();
    arrived_.reset();
    ++wait_count;
  }
  return host_;
}

int64_t HostCopy::num_waits() { return wait_count; }

}  // namespace shoal
