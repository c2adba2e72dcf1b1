#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "launch/job/launch_info.h"
#include "launch/weights/open_checkpoint.h"
#include "runtime/base/error.h"

namespace shoal {

/// Arguments of `shoal predict CKPT|RUN FILE|FOLDER|-… [key=value …] [--top-k K] [--json]
/// [--save-images FOLDER]`.
struct PredictArguments {
  CheckpointChoice checkpoint;
  /// Image files, folders of images, or files of text, a sample a line; "-": paths or texts from
  /// standard input, one a line. ~key, and key=value unless it names a file, are overrides.
  std::vector<std::string> words;
  int64_t top_k = 5;        ///< classes that are printed for each input
  bool json = false;        ///< prints a JSON object a line
  std::string images = {};  ///< folder for restored images; "": predict classes
};

/// Predicts the classes of inputs, or restores images, on any number of ranks. Inputs are prepared
/// as in an evaluation, and each is computed apart (EvaluationParts::each_batch). Rank 0 prints
/// results in the inputs' order, batch by batch. Inputs that cannot be read are named on standard
/// error and left out; the result is then ExitCode::kData. An error is printed and ends the job
/// with its exit code: 2 without inputs, 10 if task or data source do not fit.
ExitCode predict(const PredictArguments& arguments, const Environment& environment,
                 std::ostream& out);

}  // namespace shoal
