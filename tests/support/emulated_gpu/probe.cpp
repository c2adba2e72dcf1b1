#include "tests/support/emulated_gpu/counts.h"
#include "tests/support/emulated_gpu/emulated_gpu.h"

// What tests/support/gpu_probe.h looks up, in a library of its name.
extern "C" void shoal_probe_refuse_waits(bool refuses) { emulated_gpu::refuse_waits(refuses); }

extern "C" int64_t shoal_probe_count_waits(void (*body)(void*), void* argument) {
  const int64_t before = emulated_gpu::num_waits();
  body(argument);
  return emulated_gpu::num_waits() - before;
}

extern "C" int64_t shoal_probe_count_launches(void (*body)(void*), void* argument) {
  const emulated_gpu::Counts made = emulated_gpu::counts_of([&] { body(argument); });
  return made.num_launches() + made.num_pinned_copies();
}
