#pragma once

#include <ostream>

#include "launch/evaluate/evaluation_images.h"
#include "launch/weights/open_checkpoint.h"
#include "runtime/base/error.h"

namespace shoal {

/// Arguments of `shoal eval CKPT|RUN [key=value …] [--best] [--override] [--json] [--images FOLDER
/// [--count N]] [--no-baselines]`.
struct EvalArguments {
  CheckpointChoice checkpoint;
  bool json = false;          ///< prints one JSON object
  ImagesRequest images = {};  ///< pictures of samples to draw; default: none
  bool baselines = true;      ///< also evaluates simple predictors that the task has for comparison
};

/// Evaluates a checkpoint on its recipe's validation split, on any number of ranks: experts are
/// sharded over all ranks, and the recipe's `parallel` is ignored. Opens the training split only to
/// fit baselines; if that fails, leaves them out with a warning. Rank 0 prints to `out` and writes
/// pictures. An error is printed and ends the job with its exit code.
ExitCode eval(const EvalArguments& arguments, const Environment& environment, std::ostream& out);

}  // namespace shoal
