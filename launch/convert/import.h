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

/// Arguments of `shoal import FOLDER|FILE --as FORMAT OUT [key=value …]`.
struct ImportArguments {
  std::string path;                         ///< safetensors file, or a folder of a saved model
  std::string format;                       ///< one of import_formats()
  std::string out;                          ///< folder to create
  std::vector<std::string> overrides = {};  ///< `key=value`, of the derived recipe
  bool json = false;
};

/// Imports a model that another program saved, to evaluate or train it. Creates a folder laid out
/// as a run's: a checkpoint of step 0, and resolved.yaml, a recipe derived from the weights. The
/// derived recipe has train.precision float64 if all weights are float64; else weights become
/// float32. An error leaves nothing at `out`. Throws Error (exit 2) for an unknown format; Error
/// (exit 12) if Shoal does not support the model, or tensors are missing, surplus or misshapen, and
/// lists them; ConfigError for the overrides; CheckpointError (exit 20) for damaged files;
/// StorageError if files cannot be read or written, or `out` exists.
ExitCode import_weights(const ImportArguments& arguments, const Environment& environment,
                        std::ostream& out);

/// Model weights to be saved as the only checkpoint of a run, without optimizer and data state.
struct ModelRun : Stateful {
  std::string id;                                  ///< run id, recorded in the checkpoint
  SaveInfo point = {};                             ///< step, samples and score of the training
  std::map<std::string, std::string> origin = {};  ///< further facts for the manifest, by name
  ModelWeights weights = {};
  std::string tokenizer = {};  ///< identity of the tokenizer of its data; empty: unknown

  void visit_state(StateVisitor& visitor) override;
};
/// Writes a checkpoint of `run` and resolved.yaml into an existing folder. Throws StorageError.
void write_model_run(const Recipe& recipe, ModelRun& run, const std::string& folder);

/// Returns the accepted values of --as, sorted.
std::vector<std::string> import_formats();

}  // namespace shoal
