#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <memory>

// What tests/support/gpu_probe.h looks up, in a library of its own: test programs load CUDA only
// where a test asks for it.
extern "C" {

void shoal_probe_refuse_waits(bool refuses) {
  c10::cuda::warning_state().set_sync_debug_mode(refuses ? c10::cuda::SyncDebugMode::L_ERROR
                                                         : c10::cuda::SyncDebugMode::L_DISABLED);
}

void* shoal_probe_capture(void (*body)(void*), void* argument) {
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  auto graph = std::make_unique<at::cuda::CUDAGraph>();
  graph->capture_begin();
  body(argument);
  graph->capture_end();
  return graph.release();
}

void shoal_probe_replay(void* graph) {
  static_cast<at::cuda::CUDAGraph*>(graph)->replay();
  c10::cuda::device_synchronize();
}

void shoal_probe_free(void* graph) { delete static_cast<at::cuda::CUDAGraph*>(graph); }
}
