#include "runtime/device/flush_denormals.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

namespace shoal {

void flush_denormals(bool on) {
  const auto flush = [on](int64_t /*begin*/, int64_t /*end*/) {
    at::Context::setFlushDenormal(on);
  };
  flush(0, 1);
  at::parallel_for(0, at::get_num_threads(), /*grain_size=*/1, flush);
}

}  // namespace shoal
