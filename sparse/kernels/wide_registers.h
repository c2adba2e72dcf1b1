#pragma once

namespace shoal {

/// Whether the processor has 32 registers of 64 bytes, which have room for 16 sums and what they
/// are of; else 16 of 32 bytes are expected.
inline bool has_wide_registers() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx512f");
  return has;
#else
  return false;
#endif
}

}  // namespace shoal
