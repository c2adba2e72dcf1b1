#include "runtime/device/flush_denormals.h"
#include "runtime/device/process_parts.h"
#include "runtime/device/tensor_memory.h"
#include "runtime/products/sgemm.h"

namespace shoal {

void use_process_parts() {
  const auto set_up = [] {
    flush_denormals();
    recycle_tensor_memory();
  };
  register_process_parts({set_up, sgemm_library, misses_onednn});
}

}  // namespace shoal
