#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "launch/job/launch_info.h"
#include "launch/weights/open_checkpoint.h"

namespace shoal {

/// Options of draw_gate_maps.
struct GateMapsArguments {
  CheckpointChoice checkpoint;
  std::string file = {};  ///< named *.html; replaced
  int64_t samples = 8;    ///< number of samples, from the start of the validation split
  std::optional<std::string> prompt = {};  ///< a text in place of the samples
  bool json = false;
};

/// `shoal inspect PATH --gates FILE.html [--samples N | --prompt TEXT] [key=value …]`: draws, for a
/// trained model with token gates, the tokens that attend in each layer, for the validation split's
/// first samples or for a prompt: a page (gate_page.h), which replaces the file, and the gates'
/// numbers (gate_numbers.h) over all samples as a table or one JSON object on `out`. In this
/// process alone. Throws Error (exit 2) for a model without gates and prompts that the model cannot
/// read; StorageError if the page cannot be written.
ExitCode draw_gate_maps(const GateMapsArguments& arguments, const Environment& environment,
                        std::ostream& out);

}  // namespace shoal
