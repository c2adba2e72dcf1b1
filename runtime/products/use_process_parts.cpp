#include "runtime/device/flush_denormals.h"
#include "runtime/device/process_parts.h"
#include "runtime/device/tensor_memory.h"
#include "runtime/products/sgemm.h"

namespace shoal {

void use_process_parts() {
  process_parts() = {[] {
                       flush_denormals();
                       recycle_tensor_memory();
                     },
                     sgemm_library, misses_onednn};
}

}  // namespace shoal
