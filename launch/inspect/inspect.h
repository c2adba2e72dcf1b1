#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "launch/job/launch_info.h"
#include "launch/weights/open_checkpoint.h"
#include "runtime/base/error.h"

namespace shoal {

struct InspectArguments {
  CheckpointChoice checkpoint;  ///< its recipe's overrides and raw weights are for drawings
  std::string diff = {};        ///< compare with this checkpoint, number by number
  bool tensors = false;         ///< list every tensor with its range and norm
  bool json = false;
  bool experts = false;  ///< how the run's experts were loaded at the checkpoint's step
  /// With `experts`: draws their loads up to that step into this file, a name in .svg, which is
  /// replaced.
  std::string heat_map = {};
  // For draw_activation_maps and draw_expert_maps, each a folder that is empty or not there yet:
  std::string activation_maps = {}, expert_maps = {};
  int64_t images = 8;  ///< the first ones of the validation split
  // For draw_sparsity (sparsity_maps.h):
  bool sparsity = false;
  std::string page = {};  ///< a file, a name in .html; none: numbers only
  // For draw_gate_maps (gate_maps.h):
  std::string gates = {};                  ///< a file, a name in .html
  int64_t samples = 8;                     ///< the first ones of the validation split
  std::optional<std::string> prompt = {};  ///< this text in their place
};

/// `shoal inspect PATH [--tensors | --diff OTHER | --experts [--heat-map FILE.svg] | …]`: what a
/// checkpoint holds, or a drawing of what its model does. `--diff` ends as `ckpt diff` does. The
/// experts are in experts.jsonl of its run; DataError (exit 13) if that has no record up to its
/// step. StorageError (exit 21) if the heat map cannot be written. Drawings throw as theirs do.
ExitCode inspect(const InspectArguments& arguments, const Environment& environment,
                 std::ostream& out);

}  // namespace shoal
