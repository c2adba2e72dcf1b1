#include "launch/machine/peak_rate.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <string_view>
#include <vector>

#include "launch/machine/machine_facts.h"

namespace shoal {
namespace {

constexpr double kTera = 1e12;

/// Dense TFLOP/s of a GPU. Products in TF32 have half the rate of bfloat16 on all of them.
struct KnownGpu {
  std::string_view part_of_name;
  double bfloat16, float32, float64;
};

// The first entry whose name is part of the GPU's name applies. float64 uses tensor cores, if any.
constexpr std::array kGpus{KnownGpu{"H200", 989, 67, 67},     KnownGpu{"H100 PCIe", 756, 51, 51},
                           KnownGpu{"H100 NVL", 835, 60, 60}, KnownGpu{"H100", 989, 67, 67},
                           KnownGpu{"A100", 312, 19.5, 19.5}, KnownGpu{"L40S", 362, 91.6, 1.4}};

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// CPU time of all threads of this process until now.
double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

TimedProducts time_products(torch::Dtype dtype) {
  constexpr int64_t kSide = 768;
  constexpr double kEnoughSeconds = 0.08;  // a lost time slice of 4 ms does not decide
  const auto options = torch::TensorOptions().dtype(dtype);
  const torch::Tensor a = torch::full({kSide, kSide}, 0.7, options);
  const torch::Tensor b = torch::full({kSide, kSide}, 1.3, options);
  torch::Tensor c = at::mm(a, b);  // touches the memory, and wakes the threads
  const double start = wall_seconds(), cpu_start = cpu_seconds();
  double best = kEnoughSeconds * 1e3, end = start;
  while (end - start < kEnoughSeconds) {
    const double begin = end;
    at::mm_out(c, a, b);
    end = wall_seconds();
    best = std::min(best, end - begin);
  }
  const double usable = (end - start) * at::get_num_threads();
  return {2.0 * kSide * kSide * kSide / best, (cpu_seconds() - cpu_start) / usable};
}

std::string gpu_model(const std::string& proc) {
  const std::vector<std::string> models = gpu_models(proc);
  const bool is_mixed = std::ranges::adjacent_find(models, std::not_equal_to()) != models.end();
  return models.empty() || is_mixed ? "" : models.front();
}

std::optional<double> gpu_flops(const std::string& model, torch::Dtype dtype, bool tf32) {
  for (const KnownGpu& gpu : kGpus) {
    if (model.find(gpu.part_of_name) == std::string::npos) continue;
    if (dtype == torch::kBFloat16) return gpu.bfloat16 * kTera;
    if (dtype == torch::kFloat32) return (tf32 ? gpu.bfloat16 / 2 : gpu.float32) * kTera;
    if (dtype == torch::kFloat64) return gpu.float64 * kTera;
    break;
  }
  return std::nullopt;
}

PeakRate peak_rate(const torch::Device& device, torch::Dtype dtype, std::optional<double> wanted,
                   const TimedProducts& timed, bool tf32) {
  if (wanted) return {*wanted * kTera, "run.peak_tflops"};
  if (!device.is_cuda()) {
    if (timed.core_share >= kLeastCoreShare) return {timed.flops_per_second, "measured"};
    return {0, "the peak of shared cores cannot be measured"};
  }
  const std::string model = gpu_model();
  const std::optional<double> known = gpu_flops(model, dtype, tf32);
  return known ? PeakRate{*known, model} : PeakRate{0, "the peak of this GPU is not known"};
}

}  // namespace shoal
