#include "launch/job/rank_devices.h"

#include <ATen/Context.h>
#include <ATen/cpu/Utils.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "launch/job/failure.h"
#include "launch/job/rank_facts.h"
#include "parallel/comm/gpu_binding.h"
#include "parallel/nccl/nccl_communicator.h"
#include "parallel/nccl/nccl_watch.h"
#include "runtime/base/text.h"
#include "runtime/options/config.h"

namespace shoal {
namespace {

RankBinding binding_of(const DeviceChoice& own, const Recipe& recipe, const LaunchInfo& launch,
                       const Communicator& world) {
  RankBinding binding;
  binding.rank = world.rank();
  binding.host = host_name();
  binding.local_rank = launch.local_rank;
  binding.threads = choose_threads(recipe.run.threads, launch);
  if (own.device.is_cuda()) {
    binding.machine = machine_id();
    binding.gpu = own.device.index();
  }
  return binding;
}

void connect(RankDevices& devices, const std::shared_ptr<NcclBackend>& backend, bool shares_gpus,
             Communicator& world) {
  for (const auto& [name, value] : nccl_environment(shares_gpus, nccl_version(backend->nccl))) {
    ::setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  }
  backend->watch = std::make_shared<NcclWatch>(
      [&world](const std::exception_ptr& error) { end_job(error, world); });
  devices.gpu_world = make_nccl_communicator(world.split(0, world.rank()), backend);
  devices.log_lines.push_back(nccl_log_line(backend->nccl));
}

}  // namespace

bool cpu_has_bfloat16() {
  const auto capabilities = at::cpu::get_cpu_capabilities();
  const auto has = [&](const char* name) {
    const auto found = capabilities.find(name);
    return found != capabilities.end() && found->second.isBool() && found->second.toBool();
  };
  return has("avx512_bf16") || has("amx_bf16");
}

void check_precision(Precision precision, const c10::Device& device, bool has_bfloat16) {
  if (precision != Precision::kBfloat16 || !device.is_cpu() || has_bfloat16) return;
  throw Error(
      ExitCode::kTopology,
      "train.precision: this processor has neither avx512_bf16 nor amx_bf16, without which "
      "bfloat16 is slower than float32",
      "add train.precision=float32 to the command: the weights are float32 in any case (only "
      "to resume a run with it takes --override); or use a machine whose processor has them");
}

void set_gpu_precision(bool tf32) {
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
  at::globalContext().setAllowTF32CuBLAS(tf32);
  at::globalContext().setAllowTF32CuDNN(tf32);
}

NcclLimits nccl_limits(const std::optional<Duration>& hang_timeout) {
  if (!hang_timeout) return NcclLimits::of(kNever);
  constexpr double kCentury = 3.2e9;  // in seconds; clocks count nanoseconds in 64 bits
  const std::chrono::duration<double> seconds(std::min(hang_timeout->value(), kCentury));
  return NcclLimits::of(std::chrono::ceil<std::chrono::milliseconds>(seconds));
}

RankDevices bind_ranks(const Recipe& recipe, const LaunchInfo& launch, Communicator& world) {
  const bool may_share = recipe.parallel.share_gpu;
  RankDevices devices{resolve_device(std::string(enum_name(recipe.run.device)),
                                     {.local_rank = launch.local_rank, .shares = may_share}),
                      {},
                      nullptr};
  check_precision(recipe.train.precision, devices.own.device);
  RankBinding own = binding_of(devices.own, recipe, launch, world);
  std::shared_ptr<NcclBackend> backend;
  if (devices.own.device.is_cuda()) {
    set_gpu_precision(recipe.run.tf32);
    backend = nccl_backend(devices.own.device);
    backend->limits = nccl_limits(recipe.run.hang_timeout);
    own.pci_id = backend->streams.pci_id;
  }
  const std::vector<RankBinding> bindings = gather_bindings(world, own);
  check_bindings(bindings, may_share);
  if (backend && world.size() > 1) {
    require_equal_on_ranks(world, {{"CUDA plug-in", build_id_of_loaded("libshoal_cuda.so")}});
  }
  if (world.rank() == 0 && (backend || world.size() > 1)) {
    devices.log_lines = split(binding_table(bindings), '\n');
  }
  // A world of one by MPI moves memory of the CPU only.
  if (backend && world.size() == 1) devices.gpu_world = make_self_communicator();
  if (backend && world.size() > 1) connect(devices, backend, share_gpus(bindings), world);
  return devices;
}

}  // namespace shoal
