#pragma once

#include <c10/core/Device.h>

#include "launch/job/recipe.h"

namespace shoal {

/// Whether this processor has instructions for products of bfloat16: avx512_bf16 or amx_bf16.
bool cpu_has_bfloat16();

/// Throws Error (exit 11) if train.precision is bfloat16 and the device is a processor without
/// instructions for it. `has_bfloat16`: of the processor; tests have others.
void check_precision(Precision precision, const c10::Device& device,
                     bool has_bfloat16 = cpu_has_bfloat16());

}  // namespace shoal
