#pragma once

#include <torch/types.h>

#include <cstdint>

#include "runtime/random/step_context.h"

// b samples on this rank  R rows of a sample
namespace shoal {

/// int64 [b R]: which row this is in the whole run, whatever the rank: the sample's view in the top
/// byte, below it its position in the stream times R plus the row. Keys what is drawn for the row.
torch::Tensor row_ids(const StepContext& step, int64_t rows_per_sample);

}  // namespace shoal
