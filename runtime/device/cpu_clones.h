#pragma once

/// SHOAL_CPU_CLONES before a function definition compiles it for AVX-512, AVX2 and any x86, and
/// picks one version when the library is loaded. All versions give equal bits, because the build
/// sets -ffp-contract=off. For innermost loops, which may call only SHOAL_INLINE functions.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SHOAL_CPU_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SHOAL_CPU_CLONES
#endif

/// For functions that are called from one with SHOAL_CPU_CLONES.
#define SHOAL_INLINE inline __attribute__((always_inline))
