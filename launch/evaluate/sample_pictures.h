#pragma once

#include <cstdint>
#include <vector>

#include "models/task.h"
#include "parallel/comm/communicator.h"

// B samples of all ranks
namespace shoal {

/// Samples next to each other in what is evaluated.
struct PicturedSamples {
  int64_t first = 0, count = 0;
};

/// What the task draws of some samples of a micro-batch, of which this rank has a part: the same on
/// every rank, in host memory, images float32 [B, C, H, W] and numbers float64 [B]. Empty if the
/// task draws nothing. Collective. All samples are in the micro-batch.
std::vector<PictureColumn> gather_pictures(Task& task, const Batch& batch,
                                           const PicturedSamples& samples, Communicator& world);

}  // namespace shoal
