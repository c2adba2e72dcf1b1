#pragma once

namespace shoal {

/// Makes this thread, LibTorch's thread pool, and threads that they start later treat denormal
/// numbers (below 1.2e-38 in float32) as zero, in operands and in results. No effect on processors
/// without such a mode. Call it once, after the number of threads is set; `on = false` undoes it.
///
/// Arithmetic with denormals is many times slower, and gradients of a router with nearly one-hot
/// scores contain many of them.
void flush_denormals(bool on = true);

}  // namespace shoal
