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
  bool baselines = true;  ///< compares with those of the task
};

/// Evaluates a checkpoint on the validation split of its recipe, over however many ranks there are:
/// the recipe's `parallel` is ignored, experts are spread over all ranks. Opens the training split
/// only for baselines that are fitted on it, which are left out with a warning if it cannot be
/// opened. Rank 0 writes to `out`, and pictures as draw_evaluation_images. Throws as load_model.
ExitCode eval(const EvalArguments& arguments, const Environment& environment, std::ostream& out);

}  // namespace shoal
