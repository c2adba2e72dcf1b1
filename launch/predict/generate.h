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

/// `shoal generate CKPT|RUN --prompt TEXT | --prompt-file F [key=value …]`.
struct GenerateArguments {
  CheckpointChoice checkpoint;
  std::vector<std::string> prompts;       ///< texts
  std::vector<std::string> prompt_files;  ///< the whole text of each is a prompt
  Sampling sampling;
  int64_t tokens = 100;         ///< of each text at most
  int64_t samples = 1;          ///< texts of each prompt
  int64_t batch = 16;           ///< sequences at once, over all ranks
  std::optional<int64_t> seed;  ///< of the draws; run.seed of the recipe if not given
  bool json = false;
};

/// Continues texts with the language model of a checkpoint, on any number of ranks: the recipe's
/// `parallel` is ignored, experts are spread over all ranks. Opens no data but the tokenizer's
/// files. Rank 0 writes to `out`: each prompt with its text, one sequence as its tokens are chosen;
/// or one JSON object. Throws ConfigError (exit 10) if the checkpoint's task is not lm, Error
/// (exit 2) for a prompt that is empty or as long as the model's context.
ExitCode generate(const GenerateArguments& arguments, const Environment& environment,
                  std::ostream& out);

}  // namespace shoal
