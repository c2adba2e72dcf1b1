#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace {

/// Counts what LibTorch warns of, the backward pass's threads included.
struct WaitCounter : c10::WarningHandler {
  void process(const c10::Warning& warning) override {
    const bool is_wait = std::string_view(warning.msg()).find("synchronizing CUDA operation") !=
                         std::string_view::npos;
    if (is_wait) ++count;
  }
  int64_t count = 0;
};

using c10::cuda::SyncDebugMode;

void set_mode(SyncDebugMode mode) { c10::cuda::warning_state().set_sync_debug_mode(mode); }

/// Warnings where LibTorch makes the host wait, for its own lifetime.
struct WaitWarnings {
  WaitWarnings() { set_mode(SyncDebugMode::L_WARN); }
  ~WaitWarnings() { set_mode(SyncDebugMode::L_DISABLED); }
};

}  // namespace

// What tests/support/gpu_probe.h looks up, in a library of its own: test programs load CUDA only
// where a test asks for it.
extern "C" {

void shoal_probe_refuse_waits(bool refuses) {
  set_mode(refuses ? SyncDebugMode::L_ERROR : SyncDebugMode::L_DISABLED);
}

int64_t shoal_probe_count_waits(void (*body)(void*), void* argument) {
  WaitCounter counter;
  const c10::WarningUtils::WarningHandlerGuard guard(&counter);
  const WaitWarnings warnings;
  body(argument);
  return counter.count;
}

void shoal_probe_free(void* graph);

void* shoal_probe_capture(void (*body)(void*), void* argument) {
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  auto graph = std::make_unique<at::cuda::CUDAGraph>(/*keep_graph=*/true);
  graph->capture_begin();
  body(argument);
  graph->capture_end();
  graph->instantiate();
  return graph.release();
}

int64_t shoal_probe_count_nodes(void* graph, bool kernels) {
  const cudaGraph_t captured = static_cast<at::cuda::CUDAGraph*>(graph)->raw_cuda_graph();
  size_t num_nodes = 0;
  C10_CUDA_CHECK(cudaGraphGetNodes(captured, nullptr, &num_nodes));
  std::vector<cudaGraphNode_t> nodes(num_nodes);
  C10_CUDA_CHECK(cudaGraphGetNodes(captured, nodes.data(), &num_nodes));
  return std::count_if(nodes.begin(), nodes.end(), [kernels](cudaGraphNode_t node) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    C10_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
    return type == (kernels ? cudaGraphNodeTypeKernel : cudaGraphNodeTypeMemcpy);
  });
}

int64_t shoal_probe_count_launches(void (*body)(void*), void* argument) {
  void* const graph = shoal_probe_capture(body, argument);
  const int64_t count =
      shoal_probe_count_nodes(graph, /*kernels=*/true) + shoal_probe_count_nodes(graph, false);
  shoal_probe_free(graph);
  return count;
}

void shoal_probe_replay(void* graph) {
  static_cast<at::cuda::CUDAGraph*>(graph)->replay();
  c10::cuda::device_synchronize();
}

void shoal_probe_free(void* graph) { delete static_cast<at::cuda::CUDAGraph*>(graph); }
}
