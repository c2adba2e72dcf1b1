#include "parallel/checkpoint/staging.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace shoal {

void Staging::copy(const std::vector<Part>& parts, int64_t bytes) {
  const auto on_gpu = std::find_if(parts.begin(), parts.end(),
                                   [](const Part& part) { return part.value.is_cuda(); });
  const bool is_from_gpu = on_gpu != parts.end();
  if (!memory_.defined() || memory_.numel() < bytes) memory_ = allocate(bytes, is_from_gpu);
  for (const auto& [value, begin] : parts) {
    memory_.narrow(0, begin, static_cast<int64_t>(value.nbytes()))
        .view(value.scalar_type())
        .view(value.sizes())
        .copy_(value, /*non_blocking=*/true);
  }
  if (is_from_gpu) copies_.emplace(on_gpu->value.device());
}

torch::Tensor Staging::allocate(int64_t bytes, bool is_pinned) const {
  if (is_pinned) {
    try {
      return allocate_pinned_(bytes);
    } catch (const c10::Error& error) {
      warn_(fmt::format(
          "saves copy {} bytes from the GPU to pageable memory and interrupt the training for "
          "longer, since pinned memory could not be allocated; leave the machine more free memory, "
          "or start fewer ranks on it: {}",
          bytes, error.what_without_backtrace()));
    }
  }
  return torch::empty({bytes}, torch::kByte);
}

const char* Staging::wait() {
  if (copies_) copies_->wait();
  copies_.reset();
  return static_cast<const char*>(memory_.const_data_ptr());
}

// The system hands out more than there is, and would end the job once it is used.
torch::Tensor Staging::pinned_memory(int64_t bytes, int64_t available_bytes) {
  const uint64_t rounded_bytes = std::bit_ceil(static_cast<uint64_t>(bytes));
  TORCH_CHECK(rounded_bytes <= static_cast<uint64_t>(available_bytes), "LibTorch would pin ",
              rounded_bytes, " bytes, and ", available_bytes, " are left for this rank");
  return torch::empty({bytes}, torch::TensorOptions(torch::kByte).pinned_memory(true));
}

}  // namespace shoal
