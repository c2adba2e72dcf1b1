#pragma once

#include <cstdint>

namespace shoal {

/// Statistics of CPU tensor memory under recycle_tensor_memory().
struct TensorMemory {
  int64_t used_bytes = 0;       ///< held by tensors now
  int64_t peak_bytes = 0;       ///< most that tensors held at once
  int64_t cached_bytes = 0;     ///< freed by tensors, kept for reuse; at most peak_bytes
  int64_t held_peak_bytes = 0;  ///< most that was used and cached at once
  int64_t reused = 0;           ///< allocations served from the cache
};

/// Makes CPU tensors reuse the memory that earlier tensors freed, like PyTorch's CUDA allocator.
///
/// A training step frees and allocates the same large tensors again. malloc returns large blocks to
/// the system, so each page would be faulted in anew. Here freed blocks of 64 KiB and more are
/// kept. A new tensor takes a kept block if it fills at least four fifths of the block. Kept bytes
/// never exceed the peak of bytes in use, so used and kept bytes together are at most twice that
/// peak. The blocks kept longest are freed first; all kept blocks are freed before an allocation
/// fails. Blocks of 2 MiB and more use huge pages if the kernel has them, which speeds up exchanges
/// of rows between ranks of one machine. Memory of tensors made before the call, or by another
/// allocator, is not kept. New tensors are uninitialised. Also sets malloc to keep up to 256 MiB.
/// Call once, at the start of a program that trains, before threads make tensors; idempotent.
/// Throws c10::Error if another allocator takes precedence.
void recycle_tensor_memory();

/// The statistics; all zero unless recycle_tensor_memory was called.
TensorMemory tensor_memory();

/// Frees the cache and resets both peaks to the memory that tensors hold now.
void release_tensor_memory();

}  // namespace shoal
