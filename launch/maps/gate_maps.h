#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "launch/job/launch_info.h"
#include "launch/weights/open_checkpoint.h"

namespace shoal {

/// What draw_gate_maps is asked for.
struct GateMapsArguments {
  CheckpointChoice checkpoint;
  std::string file = {};                   ///< a name in .html, which is replaced
  int64_t samples = 8;                     ///< the first ones of the validation split
  std::optional<std::string> prompt = {};  ///< this text in their place
  bool json = false;
};

/// `shoal inspect PATH --gates FILE.html [--samples N | --prompt TEXT] [key=value …]`: draws which
/// tokens attend in which layer of a trained model with token gates, of the validation split's
/// first samples or of a prompt, into a page (gate_page.h), which is replaced; the gates' numbers
/// (gate_numbers.h) over all samples as a table or one JSON object on `out`. On this process alone.
/// Throws Error (exit 2) for a model without gates and prompts that the model cannot read;
/// StorageError if the page cannot be written.
ExitCode draw_gate_maps(const GateMapsArguments& arguments, const Environment& environment,
                        std::ostream& out);

}  // namespace shoal
