#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "launch/job/launch_info.h"
#include "launch/model/model_weights.h"
#include "parallel/checkpoint/checkpoint.h"
#include "runtime/base/error.h"

namespace shoal {

/// `shoal import FOLDER|FILE --as FORMAT OUT [key=value …]`.
struct ImportArguments {
  std::string path;
  std::string format;  ///< a registered WeightFormat, or kOwnLayout
  std::string out;
  std::vector<std::string> overrides = {};  ///< of the recipe derived from the weights
  bool json = false;
};

/// Imports weights saved by another program into a new folder `out`, laid out as a run folder: a
/// checkpoint of step 0 and resolved.yaml, the model's recipe. Weights are converted to the dtype
/// of train.precision, which is float64 if all weights are. An error leaves nothing at `out`.
/// Throws Error (exit 2) for an unknown format; Error (exit 12) if Shoal does not support the
/// model, or tensors are missing, surplus or misshapen, and lists them; ConfigError for the
/// overrides; CheckpointError (exit 20) for damaged files; StorageError if they cannot be read, or
/// if `out` exists or cannot be written.
ExitCode import_weights(const ImportArguments& arguments, const Environment& environment,
                        std::ostream& out);

/// Model weights, without optimizer or data state, that are to be written as a run folder.
struct ModelRun : Stateful {
  std::string id;
  SaveInfo point = {};                             ///< of the training
  std::map<std::string, std::string> origin = {};  ///< for Manifest::written_by
  ModelWeights weights = {};
  std::string tokenizer = {};  ///< Tokenizer::identity(); empty: unknown

  void visit_state(StateVisitor& visitor) override;
};
/// Fills a folder as a run's: a checkpoint and resolved.yaml. Throws StorageError.
void write_model_run(const Recipe& recipe, ModelRun& run, const std::string& folder);

/// The values of --as.
std::vector<std::string> import_formats();

}  // namespace shoal
