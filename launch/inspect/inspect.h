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
  CheckpointChoice checkpoint;  ///< its overrides and raw_weights apply to drawings
  std::string diff = {};        ///< another checkpoint to compare with, number by number
  bool tensors = false;         ///< list every tensor with its range and norm
  bool json = false;
  bool experts = false;  ///< show the load of the run's experts at the checkpoint's step
  /// With `experts`: a file, named *.svg, for a heat map of their loads up to that step; replaced.
  std::string heat_map = {};
  // For draw_activation_maps and draw_expert_maps, each an empty or missing folder:
  std::string activation_maps = {}, expert_maps = {};
  int64_t images = 8;  ///< number of images, from the start of the validation split
  // For draw_sparsity (sparsity_maps.h):
  bool sparsity = false;
  std::string page = {};  ///< a file named *.html; "": numbers only
  // For draw_gate_maps (gate_maps.h):
  std::string gates = {};  ///< a file named *.html
  int64_t samples = 8;     ///< number of samples, from the start of the validation split
  std::optional<std::string> prompt = {};  ///< a text in place of the samples
};

/// `shoal inspect PATH [--tensors | --diff OTHER | --experts [--heat-map FILE.svg] | …]`: shows a
/// checkpoint's content, or draws what its model does. `--diff` exits as `ckpt diff`. Expert loads
/// are read from the run's experts.jsonl; DataError (exit 13) if that has no record up to the
/// checkpoint's step. StorageError (exit 21) if the heat map cannot be written. Drawings throw as
/// their functions.
ExitCode inspect(const InspectArguments& arguments, const Environment& environment,
                 std::ostream& out);

}  // namespace shoal
