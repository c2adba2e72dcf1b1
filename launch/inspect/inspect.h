#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "launch/job/launch_info.h"
#include "launch/weights/open_checkpoint.h"
#include "runtime/base/error.h"

namespace shoal {

/// Arguments of `shoal inspect`.
struct InspectArguments {
  CheckpointChoice checkpoint;  ///< overrides and raw weights apply to drawings only
  std::string diff = {};        ///< compares all values with this checkpoint
  bool tensors = false;         ///< lists every tensor with its range and norm
  bool json = false;
  bool experts = false;  ///< prints the run's expert loads at the checkpoint's step
  /// With `experts`: draws the loads up to that step into this .svg file, replacing it.
  std::string heat_map = {};
  // For draw_activation_maps and draw_expert_maps, into an empty or new folder each:
  std::string activation_maps = {}, expert_maps = {};
  int64_t images = 8;  ///< number of images, from the start of the validation split
  // For draw_sparsity (sparsity_maps.h):
  bool sparsity = false;
  std::string page = {};  ///< an .html file; "": prints statistics only
  // For draw_gate_maps (gate_maps.h):
  std::string gates = {};                  ///< an .html file
  int64_t samples = 8;                     ///< number of samples from the validation split
  std::optional<std::string> prompt = {};  ///< text to use in place of samples
};

/// `shoal inspect PATH [--tensors | --diff OTHER | --experts [--heat-map FILE.svg] | …]`: prints
/// the contents of a checkpoint, or draws pictures of its model at work. `--diff` has the exit
/// codes of `ckpt diff`. `--experts` reads experts.jsonl of the run; DataError (exit 13) if it has
/// no record up to the step. StorageError (exit 21) if the heat map cannot be written. Drawings
/// throw as the draw_... functions.
ExitCode inspect(const InspectArguments& arguments, const Environment& environment,
                 std::ostream& out);

}  // namespace shoal
