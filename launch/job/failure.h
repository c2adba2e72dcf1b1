#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>

#include "parallel/comm/communicator.h"
#include "runtime/base/error.h"

namespace shoal {

/// An error message for the user, and the exit code.
struct Failure {
  ExitCode code = ExitCode::kInternal;
  std::string text;  ///< `error[E13] rank=0: a.bin: …; next step`; may have several lines
};

/// Describes an exception; `error` must not be null. `rank`: unset in a process that runs alone.
/// Exceptions other than shoal::Error are internal (70), except failed allocations (11).
Failure describe_failure(const std::exception_ptr& error, std::optional<int64_t> rank);

/// Turns a failed allocation, on the host or a GPU, into an Error (exit 11) with its size, the
/// activity `what` during which it failed, and the keys to change. Returns other errors unchanged.
std::exception_ptr locate_allocation(const std::exception_ptr& error, const std::string& what);

/// Waits until the launcher ends the job because a rank has printed its failure and left: for a
/// rank that has failed before it joined the others, whom the same failure probably hit. Returns
/// true if that happened, so that this rank may leave silently, and false if nothing happened
/// within `patience`, so that this rank has to print its own failure.
bool wait_for_end_of_job(std::chrono::milliseconds patience);

/// Prints a rank's failure and ends the whole job with its exit code, so that peers do not hang.
/// Since all ranks usually fail alike, the others give rank 0 a moment to print for them. Returns
/// only in a process that runs alone.
ExitCode end_job(const std::exception_ptr& error, Communicator& world);

/// Runs `work` on every rank; if it throws, ends the job.
ExitCode run_on_ranks(Communicator& world, const std::function<ExitCode()>& work);

}  // namespace shoal
