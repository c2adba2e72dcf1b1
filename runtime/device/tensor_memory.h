#pragma once

#include <cstdint>

namespace shoal {

/// What the recycling of tensor memory has done so far.
struct TensorMemory {
  int64_t used_bytes = 0;       ///< held by tensors now
  int64_t peak_bytes = 0;       ///< most that tensors held at once
  int64_t cached_bytes = 0;     ///< freed by tensors and kept; never more than peak_bytes
  int64_t held_peak_bytes = 0;  ///< most that was used and kept at once
  int64_t reused = 0;           ///< allocations served from what was kept
};

/// Makes CPU tensors take their memory from blocks that earlier tensors freed.
///
/// A training step frees and asks for the same large tensors again; malloc gives large blocks back
/// to the system, so each page is faulted in anew, at about the price of filling it. Blocks of
/// 64 KiB and more are kept for tensors of up to a quarter less, since an expert's rows vary from
/// step to step. What is kept never exceeds the most that was ever in use, so that both together
/// stay below twice that: beyond, the longest kept go back to the system, and all of them before an
/// allocation fails. Blocks of 2 MiB and more lie on huge pages where the kernel has them: ranks of
/// one machine exchange such rows in half the time. Tensors made before, or by another allocator,
/// go back where they came from. Contents of new tensors stay undefined, as ever. malloc, too,
/// keeps up to 256 MiB of what is freed to it. Once, at the start of a program that trains, before
/// threads make tensors; idempotent. Throws c10::Error where another allocator takes precedence.
void recycle_tensor_memory();

/// All zero unless recycle_tensor_memory was called.
TensorMemory tensor_memory();

/// Gives what is kept back to the system, and begins both peaks anew at what tensors hold now.
void release_tensor_memory();

}  // namespace shoal
