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
  std::vector<std::string> overrides = {};  ///< of the recipe that the weights give
  bool json = false;
};

/// Turns weights that another program saved into the folder `out`, which is as a run's: a
/// checkpoint of step 0 and resolved.yaml, the recipe of the model. Numbers are converted to the
/// dtype of train.precision, which is float64 where all weights are. Nothing is left at `out` after
/// an error. Throws Error (exit 2) for an unknown format, Error (exit 12) if the weights are not a
/// model that Shoal computes or tensors are missing, surplus or of a wrong shape, all named,
/// ConfigError for the overrides, CheckpointError (exit 20) for files that are damaged,
/// StorageError if they cannot be read, or `out` is there already or cannot be written.
ExitCode import_weights(const ImportArguments& arguments, const Environment& environment,
                        std::ostream& out);

/// A model without the state of a training, as a run that is to be written.
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
