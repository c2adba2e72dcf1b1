#pragma once

#include <ostream>

#include "launch/evaluate/evaluation_images.h"
#include "launch/job/launch_info.h"
#include "launch/weights/open_checkpoint.h"
#include "runtime/base/error.h"

namespace shoal {

/// `shoal eval CKPT|RUN [key=value …] [--best] [--override] [--json] [--images FOLDER [--count N]]
/// [--no-baselines]`.
struct EvalArguments {
  CheckpointChoice checkpoint;
  bool json = false;
  ImagesRequest images = {};
  bool baselines = true;  ///< compare with the task's baselines
};

/// Evaluates a checkpoint on the validation split of its recipe, on any number of ranks: the
/// recipe's `parallel` is ignored, experts are spread over all ranks. Opens the training split only
/// for baselines that are fitted on it; if it cannot be opened, these are left out with a warning.
/// Rank 0 writes to `out`, and pictures as draw_evaluation_images. Throws as load_model.
ExitCode eval(const EvalArguments& arguments, const Environment& environment, std::ostream& out);

}  // namespace shoal
