#include "tests/support/emulated_gpu/emulated_gpu.h"

// What tests/support/gpu_probe.h looks up, in a library of its name.
extern "C" void shoal_probe_refuse_waits(bool refuses) { emulated_gpu::refuse_waits(refuses); }
