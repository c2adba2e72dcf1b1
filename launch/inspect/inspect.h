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
  /// A checkpoint or run. `overrides` of its recipe and `raw_weights` (use the weights, not their
  /// moving averages) are accepted only with activation_maps, expert_maps or gates.
  CheckpointChoice checkpoint;
  std::string diff = {};  ///< checkpoint to compare all values with
  bool tensors = false;   ///< lists every tensor with its range and norm
  bool json = false;
  bool experts = false;  ///< prints the run's expert loads at the checkpoint's step
  /// With `experts`: draws the loads up to that step into this .svg file, replacing it.
  std::string heat_map = {};
  /// Empty or new folders for draw_activation_maps (tokens that Nexus layers, the soft MoE layers
  /// of OneSparse, mix) and for draw_expert_maps (experts that image patches are routed to).
  std::string activation_maps = {}, expert_maps = {};
  int64_t images = 8;  ///< number of images, from the start of the validation split
  /// Prints or draws masks and permutations of sparse layers (draw_sparsity).
  bool sparsity = false;
  std::string page = {};  ///< an .html file to draw them into; "": prints statistics only
  /// Draws which tokens the token gates of HSPMN v2.1 layers let attend (draw_gate_maps).
  std::string gates = {};                  ///< an .html file; "": not drawn
  int64_t samples = 8;                     ///< number of samples from the validation split
  std::optional<std::string> prompt = {};  ///< text to use in place of samples
};

/// `shoal inspect PATH`, with at most one of `--tensors`, `--diff`, `--experts`, `--sparsity`,
/// `--activation-maps`, `--expert-maps` and `--gates`: prints the contents of a checkpoint, or
/// draws pictures of its model at work. `--diff` returns 0 if the checkpoints are equal, else 1.
/// Throws DataError (exit 13) if the run's experts.jsonl, read by `--experts`, has no record up to
/// the step; Error (exit 2) for a model without the thing to draw; StorageError (exit 21).
ExitCode inspect(const InspectArguments& arguments, const Environment& environment,
                 std::ostream& out);

}  // namespace shoal
