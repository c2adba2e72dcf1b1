#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
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
  std::vector<std::string> prompt_files;  ///< each file's whole text is a prompt
  Sampling sampling;
  int64_t tokens = 100;         ///< maximum for each text
  int64_t samples = 1;          ///< number of texts for each prompt
  int64_t batch = 16;           ///< sequences at once, over all ranks
  std::optional<int64_t> seed;  ///< for sampling; default: run.seed of the recipe
  bool json = false;
};

/// Continues texts with the language model of a checkpoint, on any number of ranks: the recipe's
/// `parallel` is ignored, experts are spread over all ranks. Opens no data except the tokenizer's
/// files. Rank 0 writes each prompt with its text to `out`, a single sequence token by token; or
/// one JSON object. Throws ConfigError (exit 10) if the checkpoint's task is not lm, Error (exit 2)
/// for a prompt that is empty or as long as the model's context.
ExitCode generate(const GenerateArguments& arguments, const Environment& environment,
                  std::ostream& out);

/// Converts bytes of tokens to printable text: holds back a UTF-8 character until it is complete.
class Utf8Stream {
 public:
  /// Adds bytes and returns the text that can be printed now.
  std::string add(std::string_view bytes);
  /// Returns the remaining bytes, an incomplete character.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace shoal
