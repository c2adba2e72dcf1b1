#pragma once

#include <torch/types.h>

#include "launch/report/picture.h"

// C channels  H height  W width
namespace shoal {

/// Values in [0, 1]; of other than three channels the first one is shown grey. NaN is black.
Picture picture_of(const torch::Tensor& pixel_CHW);

}  // namespace shoal
