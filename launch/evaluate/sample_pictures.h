#pragma once

#include <cstdint>
#include <vector>

#include "models/task.h"
#include "parallel/comm/communicator.h"

// B samples of all ranks
namespace shoal {

/// A run of consecutive evaluated samples.
struct PicturedSamples {
  int64_t first = 0, count = 0;
};

/// The task's pictures of some samples of a micro-batch, of which this rank has a part; equal on
/// every rank, in host memory, images float32 [B, C, H, W] and numbers float64 [B]. Empty if the
/// task draws none. Collective. All samples must be in the micro-batch.
std::vector<PictureColumn> gather_pictures(Task& task, const Batch& batch,
                                           const PicturedSamples& samples, Communicator& world);

}  // namespace shoal
