#include "launch/check/memory_check.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>

#include "launch/check/memory_estimate.h"
#include "launch/machine/machine_memory.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

/// "weights 1.2 GiB, activations 30.0 GiB": what takes a tenth of the sum or more.
std::string largest_classes(const MemoryEstimate& estimate) {
  std::vector<std::string> parts;
  for (const auto& [name, bytes] : estimate.classes) {
    if (bytes >= estimate.total() / 10) parts.push_back(name + " " + human_bytes(bytes));
  }
  return join_words(parts);
}

/// The bytes that are available there; nothing where a GPU's allocator does not tell.
std::optional<int64_t> available_to(const RunPlace& place) {
  if (!place.device.is_cuda()) return machine_memory().available_bytes;
  try {
    return static_cast<int64_t>(
        c10::getDeviceAllocator(c10::DeviceType::CUDA)->getMemoryInfo(place.device.index()).first);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::string memory_refusal(const CheckedRecipe& checked, int64_t world, const RunPlace& place,
                           int64_t available, const Tell& tell) {
  MemoryEstimate estimate = estimate_memory(checked, world);
  if (place.device.is_cuda()) keep_device_classes(estimate);
  const int64_t ranks = place.device.is_cuda() ? 1 : place.ranks;
  const std::optional<int64_t> most = most_activations(checked, estimate);
  if (most && *most < available && (estimate.total() + *most) * ranks <= available) return "";
  if (!place.device.is_cuda()) {
    tell("memory check: measuring activations by trial steps");
    measure_activations(checked, world, available, estimate);
    if (!estimate.has_activations) {
      tell("memory check: activations are not estimated: " + estimate.not_measured);
    }
  }
  if (estimate.total() * ranks <= available) return "";
  return fmt::format(
      "train.batch: a rank would take about {} ({}; {} in a micro-batch), {} on this {} {}, of "
      "which {} is available; {}",
      human_bytes(estimate.total()), largest_classes(estimate), counted(estimate.samples, "sample"),
      counted(ranks, "rank"), place.device.is_cuda() ? "GPU" : "machine",
      human_bytes(ranks * estimate.total()), human_bytes(available),
      memory_hint(checked, estimate, available / ranks, world));
}

std::vector<std::string> require_memory(const CheckedRecipe& checked, const RunPlace& place,
                                        Communicator& world, Console& console) {
  std::vector<std::string> told;
  if (!checked.loaded.options.run.memory_check) return told;
  const auto tell = [&](const std::string& line) {
    console.print(line);
    told.push_back(line);
  };
  const std::string refusal = on_rank_zero(world, [&]() -> std::string {
    const std::optional<int64_t> available = available_to(place);
    return available ? memory_refusal(checked, world.size(), place, *available, tell) : "";
  });
  if (!refusal.empty()) throw ConfigError(refusal, ExitCode::kTopology);
  return told;
}

}  // namespace shoal
