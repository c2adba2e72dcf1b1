#include "parallel/nccl/nccl_functions.h"

#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace shoal {
namespace {

static_assert(static_cast<int>(NcclResult::kSuccess) == ncclSuccess);
static_assert(static_cast<int>(NcclResult::kInProgress) == ncclInProgress);
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

using c10::cuda::CUDAGuard;

NcclResult ours(ncclResult_t result) { return static_cast<NcclResult>(result); }
ncclDataType_t theirs(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat:
      return ncclFloat32;
    case torch::kDouble:
      return ncclFloat64;
    case torch::kLong:
      return ncclInt64;
    case torch::kBFloat16:
      return ncclBfloat16;
    default:
      return ncclUint8;
  }
}
ncclRedOp_t theirs(ReduceOp op) {
  if (op == ReduceOp::kMax) return ncclMax;
  return op == ReduceOp::kMin ? ncclMin : ncclSum;
}
ncclComm_t theirs(NcclComm* comm) { return reinterpret_cast<ncclComm_t>(comm); }
cudaStream_t theirs(GpuStream* stream) { return reinterpret_cast<cudaStream_t>(stream); }
template <typename T>
T theirs(T plain) {
  return plain;
}
GpuStream* ours(cudaStream_t stream) { return reinterpret_cast<GpuStream*>(stream); }

/// A function of NCCL's with our types, on the GPU.
template <typename... Args>
auto on_gpu(c10::DeviceIndex gpu, ncclResult_t (*function)(Args...)) {
  return [gpu, function](auto... args) {
    const CUDAGuard guard(gpu);
    return ours(function(theirs(args)...));
  };
}

std::string file_of(const void* function) {
  Dl_info info{};
  return function != nullptr && dladdr(function, &info) != 0 ? info.dli_fname : "unknown file";
}

/// The file whose ncclGetVersion a search from libtorch_cuda on finds.
std::string torch_library_file() {
  void* torch = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  if (torch == nullptr) return "unknown file";
  const std::string file = file_of(dlsym(torch, "ncclGetVersion"));
  dlclose(torch);
  return file;
}

ncclConfig_t config_of(bool shares) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  // Where it is 0, the end of each group starts an OS thread, and the host has to poll it.
  config.blocking = 1;
  config.splitShare = shares ? 1 : 0;
  return config;
}

NcclResult init_rank(c10::DeviceIndex gpu, NcclComm** comm, int size, const NcclId& id, int rank) {
  const CUDAGuard guard(gpu);
  ncclUniqueId nccl_id;
  std::memcpy(nccl_id.internal, id.bytes.data(), id.bytes.size());
  ncclConfig_t config = config_of(/*shares=*/false);
  ncclComm_t made = nullptr;
  const ncclResult_t result = ncclCommInitRankConfig(&made, size, nccl_id, rank, &config);
  *comm = reinterpret_cast<NcclComm*>(made);
  return ours(result);
}

void add_management(NcclFunctions& nccl, c10::DeviceIndex gpu) {
  nccl.header_version = NCCL_VERSION_CODE;
  nccl.library_file = file_of(reinterpret_cast<const void*>(&ncclGetVersion));
  nccl.torch_library_file = torch_library_file();
  nccl.get_version = [](int* version) { return ours(ncclGetVersion(version)); };
  nccl.get_unique_id = [](NcclId* id) {
    ncclUniqueId made;
    const ncclResult_t result = ncclGetUniqueId(&made);
    std::copy(std::begin(made.internal), std::end(made.internal), id->bytes.begin());
    return ours(result);
  };
  nccl.comm_init_rank = [gpu](NcclComm** comm, int size, const NcclId& id, int rank) {
    return init_rank(gpu, comm, size, id, rank);
  };
  nccl.comm_split = [gpu](NcclComm* parent, int color, int key, bool shares, NcclComm** comm) {
    const CUDAGuard guard(gpu);
    ncclConfig_t config = config_of(shares);
    ncclComm_t made = nullptr;
    const ncclResult_t result = ncclCommSplit(theirs(parent), color, key, &made, &config);
    *comm = reinterpret_cast<NcclComm*>(made);
    return ours(result);
  };
  nccl.comm_get_async_error = [](NcclComm* comm, NcclResult* state) {
    ncclResult_t found = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(theirs(comm), &found);
    *state = ours(found);
    return ours(result);
  };
  nccl.comm_finalize = on_gpu(gpu, ncclCommFinalize);
  nccl.comm_destroy = on_gpu(gpu, ncclCommDestroy);
  nccl.comm_abort = on_gpu(gpu, ncclCommAbort);
  nccl.get_error_string = [](NcclResult result) -> std::string {
    return ncclGetErrorString(static_cast<ncclResult_t>(result));
  };
  nccl.get_last_error = [](NcclComm* comm) -> std::string {
    const char* text = ncclGetLastError(theirs(comm));
    return text == nullptr ? "" : text;
  };
}

void add_transfers(NcclFunctions& nccl, c10::DeviceIndex gpu) {
  nccl.group_start = on_gpu(gpu, ncclGroupStart);
  nccl.group_end = on_gpu(gpu, ncclGroupEnd);
  nccl.all_reduce = on_gpu(gpu, ncclAllReduce);
  nccl.reduce_scatter = on_gpu(gpu, ncclReduceScatter);
  nccl.reduce = on_gpu(gpu, ncclReduce);
  nccl.all_gather = on_gpu(gpu, ncclAllGather);
  nccl.broadcast = on_gpu(gpu, ncclBroadcast);
  nccl.send = on_gpu(gpu, ncclSend);
  nccl.recv = on_gpu(gpu, ncclRecv);
}

/// An event of LibTorch's pool: to create one for each call would cost more than to record it.
struct PooledEvent {
  std::shared_ptr<c10::cuda::CUDAEventPool> pool;  // first: the event goes back to it
  c10::cuda::CUDAEventPool::Event event;
};

// Also asked by a thread that has set no device.
bool is_done(c10::DeviceIndex gpu, const GpuEvent& event) {
  const CUDAGuard guard(gpu);
  const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(event.get()));
  if (status != cudaErrorNotReady) {
    C10_CUDA_CHECK(status);
    return true;
  }
  cudaGetLastError();  // "not ready" must not be found by whoever asks next
  return false;
}

void add_streams(GpuStreams& streams, c10::DeviceIndex gpu) {
  const CUDAGuard guard(gpu);
  streams.device = {c10::DeviceType::CUDA, gpu};
  char pci_id[32] = {};
  C10_CUDA_CHECK(cudaDeviceGetPCIBusId(pci_id, sizeof(pci_id), gpu));
  streams.pci_id = pci_id;
  for (const Traffic traffic : {Traffic::kControl, Traffic::kExchange, Traffic::kGradients}) {
    const bool is_high_priority = traffic == Traffic::kExchange;
    streams.communication[static_cast<size_t>(traffic)] =
        ours(c10::cuda::getStreamFromPool(is_high_priority, gpu).stream());
  }
  streams.current = [gpu] { return ours(c10::cuda::getCurrentCUDAStream(gpu).stream()); };
  const auto pool = std::make_shared<c10::cuda::CUDAEventPool>();
  streams.record = [gpu, pool](GpuStream* stream) {
    const CUDAGuard on_gpu(gpu);
    const auto owner = std::make_shared<PooledEvent>(PooledEvent{pool, pool->get(gpu)});
    if (!owner->event->isCreated()) owner->event->create(gpu);
    const cudaEvent_t event = owner->event->event();
    C10_CUDA_CHECK(cudaEventRecord(event, theirs(stream)));
    return GpuEvent(owner, event);
  };
  streams.wait = [gpu](GpuStream* stream, const GpuEvent& event) {
    const CUDAGuard on_gpu(gpu);
    C10_CUDA_CHECK(cudaStreamWaitEvent(theirs(stream), static_cast<cudaEvent_t>(event.get()), 0));
  };
  streams.is_done = [gpu](const GpuEvent& event) { return is_done(gpu, event); };
  streams.copy = [gpu](void* to, const void* from, size_t bytes, GpuStream* stream) {
    const CUDAGuard on_gpu(gpu);
    C10_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, theirs(stream)));
  };
}

}  // namespace
}  // namespace shoal

extern "C" void shoal_make_nccl_backend(int ordinal, shoal::NcclBackend* backend) {
  const auto gpu = static_cast<c10::DeviceIndex>(ordinal);
  shoal::add_management(backend->nccl, gpu);
  shoal::add_transfers(backend->nccl, gpu);
  shoal::add_streams(backend->streams, gpu);
}
