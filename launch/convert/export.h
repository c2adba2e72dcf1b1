#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace shoal {

/// `shoal export CKPT|RUN --to PROGRAM OUT [--dtype DTYPE] [--best]`.
struct ExportArguments {
  std::string path;
  std::string program;  ///< WeightFormat::program of some format, or kOwnLayout
  std::string out;
  std::string dtype = {};  ///< float32, float64, bfloat16, float16; empty: the checkpoint's
  bool best = false;
  bool raw_weights = false;  ///< trained weights even if the checkpoint also has their averages
  bool json = false;
};

/// Exports a model: writes model.safetensors and config.json in the program's format into a new
/// folder `out`; in Shoal's own layout (own_layout.h), recipe.yaml in place of config.json.
/// Permutations of sparse layers are folded in (FoldedWeights). Throws Error (exit 2) for an
/// unknown program or dtype, Error (exit 12) if the program has no format for the model or a
/// permutation is still soft, otherwise as import_weights.
ExitCode export_weights(const ExportArguments& arguments, std::ostream& out);

/// Accepted values of --to.
std::vector<std::string> export_programs();

}  // namespace shoal
