#pragma once

namespace shoal {

/// True if the processor has 32 vector registers of 64 bytes (AVX-512), enough for 16 sums and
/// their operands; else sparse kernels assume 16 registers of 32 bytes.
inline bool has_wide_registers() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx512f");
  return has;
#else
  return false;
#endif
}

}  // namespace shoal
