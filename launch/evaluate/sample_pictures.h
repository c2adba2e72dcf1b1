#pragma once

#include <cstdint>
#include <vector>

#include "models/task.h"
#include "parallel/comm/communicator.h"

// B samples of all ranks
namespace shoal {

/// A range of consecutive evaluated samples.
struct PicturedSamples {
  int64_t first = 0, count = 0;
};

/// Gathers a task's pictures of some samples of a micro-batch from all ranks. Every rank returns
/// all of them, in host memory: images float32 [B, C, H, W], numbers float64 [B]. Empty if the task
/// has no pictures. Collective. All samples must be in the micro-batch.
std::vector<PictureColumn> gather_pictures(Task& task, const Batch& batch,
                                           const PicturedSamples& samples, Communicator& world);

}  // namespace shoal
