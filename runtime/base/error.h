#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/text.h"

namespace shoal {

/// Exit codes of the program. Documented in docs/troubleshooting.md; their meaning never changes.
enum class ExitCode : int {
  kOk = 0,
  kUsage = 2,               ///< unknown command or option
  kRecipe = 10,             ///< the recipe is wrong
  kTopology = 11,           ///< ranks, expert ranks, units, memory or devices do not fit
  kMismatch = 12,           ///< recipe and checkpoint, or model and weights, differ
  kData = 13,               ///< a data file is missing or wrong
  kVersionSkew = 14,        ///< ranks run different binaries, recipes or libraries
  kBusy = 15,               ///< another job owns the run directory
  kCheckpoint = 20,         ///< a checkpoint is corrupt, or none is valid
  kStorage = 21,            ///< reading or writing failed: disk full, I/O error
  kNumeric = 30,            ///< too many non-finite steps in a row
  kDivergence = 31,         ///< ranks hold different copies of the same state
  kHang = 40,               ///< reserved: a rank hangs
  kPeerLost = 41,           ///< reserved: a rank died
  kRestartsExhausted = 50,  ///< reserved: the supervisor gave up
  kInternal = 70,           ///< a bug in Shoal, or a collective failed
  kPreempted = 75,          ///< stopped by a signal or run.stop_after; can be resumed
};

/// Base of all errors that end the program with a documented exit code. The message names what
/// failed; `hint` suggests what to do and may be empty.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& what, std::string hint = "")
      : std::runtime_error(what), code_(code), hint_(std::move(hint)) {}
  ExitCode code() const { return code_; }
  const std::string& hint() const { return hint_; }

 private:
  ExitCode code_;
  std::string hint_;
};

/// The recipe is wrong, or does not fit the ranks and devices (kTopology). One line per mistake,
/// `FILE:LINE:COL: PATH: what`, where PATH is the recipe key.
class ConfigError : public Error {
 public:
  explicit ConfigError(std::vector<std::string> lines, ExitCode code = ExitCode::kRecipe)
      : Error(code, join_words(lines, "\n")), lines_(std::move(lines)) {}
  explicit ConfigError(const std::string& line, ExitCode code = ExitCode::kRecipe)
      : ConfigError(std::vector<std::string>{line}, code) {}
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

/// An error that always has the same exit code.
template <ExitCode kCode>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& what, std::string hint = "")
      : Error(kCode, what, std::move(hint)) {}
};

/// A data file is missing or wrong. Names the file and the record.
using DataError = ErrorOf<ExitCode::kData>;

/// A collective failed. Names the call, the rank and the library's text.
using CommError = ErrorOf<ExitCode::kInternal>;

/// A checkpoint is damaged, missing or too new. Names the file, tensor and byte range.
using CheckpointError = ErrorOf<ExitCode::kCheckpoint>;

/// Reading or writing a file, also of a checkpoint, failed (I/O error, disk full). Names the path
/// and the system's text; for writes also the bytes needed and free.
using StorageError = ErrorOf<ExitCode::kStorage>;

/// Throws Error (exit 2): `what` 'word', with the nearest of the `known` words, or else all of
/// them.
[[noreturn]] inline void refuse_unknown(const std::string& what, const std::string& word,
                                        const std::vector<std::string>& known) {
  const std::string guess = did_you_mean(word, known);
  throw Error(ExitCode::kUsage, what + " '" + word + "'" + guess,
              guess.empty() ? "one of: " + join_words(known) : "");
}

}  // namespace shoal
