#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "launch/job/launch_info.h"
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

/// Converts weights that another program saved into the folder `out`, laid out like a run's: a
/// checkpoint of step 0 and resolved.yaml, the model's recipe. Numbers are converted to the dtype
/// of train.precision, float64 if all weights are. After an error `out` is removed. Throws Error
/// (exit 2) for an unknown format, Error (exit 12) if Shoal does not implement the model or tensors
/// are missing, surplus or of a wrong shape, all named, ConfigError for the overrides,
/// CheckpointError (exit 20) for damaged files, StorageError if they cannot be read, or `out`
/// exists or cannot be written.
ExitCode import_weights(const ImportArguments& arguments, const Environment& environment,
                        std::ostream& out);

/// Accepted values of --as.
std::vector<std::string> import_formats();

}  // namespace shoal
