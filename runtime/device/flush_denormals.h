#pragma once

namespace shoal {

/// Makes CPUs take denormal numbers, those too small for a full exponent (below 1.2e-38 in
/// float32), for zero, as GPUs' fast paths do: in this thread, in LibTorch's pool, and in threads
/// that these start later. A processor that has no such mode computes on as before.
///
/// Arithmetic with denormals takes many times as long, and a router that is sure of its choices
/// fills gradients with them: such a training took 1.45 times as long. Once, at the start of a
/// program that trains, when the number of threads is set. `on`: false takes it back.
void flush_denormals(bool on = true);

}  // namespace shoal
