#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "launch/job/launch_info.h"
#include "launch/weights/open_checkpoint.h"

namespace shoal {

/// Arguments of draw_gate_maps.
struct GateMapsArguments {
  CheckpointChoice checkpoint;
  std::string file = {};                   ///< an .html file, which is replaced
  int64_t samples = 8;                     ///< number of samples from the validation split
  std::optional<std::string> prompt = {};  ///< text to use in place of samples
  bool json = false;
};

/// `shoal inspect PATH --gates FILE.html [--samples N | --prompt TEXT] [key=value …]`: shows which
/// tokens attend in which layers of a model with token gates (HSPMN v2.1: a gate decides for each
/// token whether it attends), for the validation split's first samples or a prompt. Writes a page
/// (gate_page.h) and prints the gates' statistics over all samples to `out`, as a table or one JSON
/// object. Runs in one process. Throws Error (exit 2) for a model without gates and for prompts
/// that the model cannot read, StorageError if the page cannot be written.
ExitCode draw_gate_maps(const GateMapsArguments& arguments, const Environment& environment,
                        std::ostream& out);

}  // namespace shoal
