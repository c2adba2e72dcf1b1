#pragma once

#include <ostream>
#include <string>

#include "launch/job/launch_info.h"
#include "launch/weights/open_checkpoint.h"
#include "runtime/base/error.h"

namespace shoal {

/// `shoal score CKPT|RUN FILE|- [--out FILE] [key=value …]`.
struct ScoreArguments {
  CheckpointChoice checkpoint;
  std::string file;  ///< JSON lines; "-": standard input
  std::string out;   ///< file to make; "": print
};

/// Computes how probable the continuation in each line `{"context": …, "continuation": …}` is after
/// its context, on any number of ranks, and writes a line `{…, "logprob", "greedy", "tokens"}` for
/// each, in order. Expert choices of a line do not depend on other lines. Throws ConfigError (exit
/// 10) unless the checkpoint's task is lm; for a wrong line DataError (exit 13) with its number,
/// once the lines before it are written; StorageError for --out.
///
/// Source: lm-evaluation-harness, HFLM.loglikelihood, loglikelihood_rolling and _encode_pair.
ExitCode score(const ScoreArguments& arguments, const Environment& environment, std::ostream& out);

}  // namespace shoal
