#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "launch/job/launch_info.h"
#include "launch/weights/open_checkpoint.h"
#include "models/sampling.h"
#include "runtime/base/error.h"

namespace shoal {

/// `shoal generate CKPT|RUN --prompt TEXT | --prompt-file F [key=value …]`. Without a prompt one
/// process reads it from standard input, unless that is a terminal.
struct GenerateArguments {
  CheckpointChoice checkpoint;
  std::vector<std::string> prompts;       ///< prompt texts
  std::vector<std::string> prompt_files;  ///< files with the text of a prompt; "-": standard input
  Sampling sampling;                      ///< temperature, top-k, top-p
  int64_t tokens = 100;                   ///< maximum number of new tokens per text
  int64_t samples = 1;                    ///< number of texts per prompt
  int64_t batch = 16;                     ///< sequences generated at once, over all ranks
  std::optional<int64_t> seed;            ///< of the sampling; default: run.seed of the recipe
  bool json = false;                      ///< print one JSON object
};

/// Generates text with the language model of a checkpoint, on any number of ranks: `parallel` of
/// the recipe is ignored, and experts are sharded over all ranks. Of the data only the tokenizer's
/// files are opened. Rank 0 prints each prompt with its text to `out`; if there is only one
/// sequence, token by token as they are generated; with `json`, one JSON object instead. Throws
/// ConfigError (exit 10) if the checkpoint's task is not lm, Error (exit 2) for a prompt that is
/// empty or as long as the model's context.
ExitCode generate(const GenerateArguments& arguments, const Environment& environment,
                  std::ostream& out);

}  // namespace shoal
