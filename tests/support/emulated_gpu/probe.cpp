// What tests/support/gpu_probe.h looks up, in a library of its name.
namespace emulated_gpu {
void refuse_waits(bool refuses);  // device.cpp
}

extern "C" void shoal_probe_refuse_waits(bool refuses) { emulated_gpu::refuse_waits(refuses); }
