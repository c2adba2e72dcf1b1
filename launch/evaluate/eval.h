#pragma once

#include <ostream>

#include "launch/evaluate/evaluation_images.h"
#include "launch/weights/open_checkpoint.h"
#include "runtime/base/error.h"

namespace shoal {

/// `shoal eval CKPT|RUN [key=value …] [--best] [--override] [--json] [--images FOLDER [--count N]]
/// [--no-baselines]`.
struct EvalArguments {
  CheckpointChoice checkpoint;
  bool json = false;
  ImagesRequest images = {};
  bool baselines = true;  ///< evaluates the task's baselines too
};

/// Evaluates a checkpoint on its recipe's validation split, on any number of ranks: `parallel` of
/// the recipe is ignored, and experts are sharded over all ranks. The training split is opened only
/// to fit baselines; if that fails, they are left out with a warning. Rank 0 prints to `out`, and
/// saves pictures as draw_evaluation_images. Throws as load_model.
ExitCode eval(const EvalArguments& arguments, const Environment& environment, std::ostream& out);

}  // namespace shoal
