#include "launch/job/check_precision.h"

#include <ATen/cpu/Utils.h>

#include "runtime/base/error.h"

namespace shoal {

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

}  // namespace shoal
