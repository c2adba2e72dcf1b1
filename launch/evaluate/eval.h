#pragma once

#include <ostream>

#include "launch/evaluate/evaluation_images.h"
#include "launch/weights/open_checkpoint.h"
#include "runtime/base/error.h"

namespace shoal {

/// Arguments of `shoal eval CKPT|RUN [key=value …] [--best] [--override] [--json] [--images FOLDER
/// [--count N]] [--predictions FILE] [--confusion] [--no-baselines]`.
struct EvalArguments {
  CheckpointChoice checkpoint;
  bool json = false;             ///< prints one JSON object
  ImagesRequest images = {};     ///< pictures of samples to draw; default: none
  std::string predictions = {};  ///< file that gets a line for each sample; "": none
  bool confusion = false;        ///< counts which classes are taken for which
  bool baselines = true;  ///< also evaluates simple predictors that the task has for comparison
};

/// Evaluates a checkpoint on its recipe's validation split, on any number of ranks: experts are
/// sharded over all ranks, and the recipe's `parallel` is ignored. Opens the training split only to
/// fit baselines; if that fails, leaves them out with a warning. Rank 0 prints to `out` and writes
/// pictures. With --confusion, writes the counts into the folder of the checkpoint's run, too, for
/// the report. An error is printed and ends the job with its exit code.
ExitCode eval(const EvalArguments& arguments, const Environment& environment, std::ostream& out);

}  // namespace shoal
