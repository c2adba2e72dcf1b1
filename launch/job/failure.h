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

/// Describes an exception; `error` must not be null. `rank`: of this process; unset if it is alone.
/// Exceptions other than shoal::Error are internal (exit 70), but failed allocations are exit 11.
Failure describe_failure(const std::exception_ptr& error, std::optional<int64_t> rank);

/// Turns a failed allocation, on the host or a GPU, into an Error (exit 11) with its size, the
/// activity `what` during which it failed, and the keys to change. Returns other errors unchanged.
std::exception_ptr locate_allocation(const std::exception_ptr& error, const std::string& what);

/// Waits up to `patience` for the signal by which the launcher ends the job after a rank has
/// failed. For errors before the ranks are connected, such as a recipe mistake, which usually occur
/// on every rank. Returns true if the signal came: another rank has printed the failure, and this
/// rank may leave silently. Returns false if none came: this rank has to print its own failure.
bool wait_for_end_of_job(std::chrono::milliseconds patience);

/// Prints the failure of a rank and ends the whole job with its exit code, so that peers do not
/// hang. Ranks other than 0 wait a moment first, so that only rank 0 prints a failure that all
/// ranks share. Returns only in a process that runs alone.
ExitCode end_job(const std::exception_ptr& error, Communicator& world);

/// Runs `work` on every rank; if it throws, ends the job.
ExitCode run_on_ranks(Communicator& world, const std::function<ExitCode()>& work);

}  // namespace shoal
