#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "launch/weights/open_checkpoint.h"
#include "runtime/base/error.h"

namespace shoal {

/// Arguments of `shoal export CKPT|RUN --to PROGRAM OUT [--dtype DTYPE] [--best]`.
struct ExportArguments {
  CheckpointChoice checkpoint;  ///< overrides are not read
  std::string program;          ///< one of export_programs()
  std::string out;              ///< folder to create
  std::string dtype = {};       ///< float32, float64, bfloat16, float16; empty: the checkpoint's
  bool json = false;
};

/// Exports a model to another program: writes model.safetensors and config.json in its format into
/// a new folder. Shoal's own layout (program safetensors) has recipe.yaml and, with all defaults
/// and the shape of samples, recipe.json. Permutations of sparse layers are folded into the
/// weights. Throws Error (exit 2) for an unknown program or dtype; Error (exit 12) if the program
/// has no format for the model, or a permutation is still soft (a trained matrix); CheckpointError
/// (exit 20) for damaged files; StorageError if files cannot be read or written, or `out` exists.
ExitCode export_weights(const ExportArguments& arguments, std::ostream& out);

/// Returns the accepted values of --to, sorted.
std::vector<std::string> export_programs();

}  // namespace shoal
