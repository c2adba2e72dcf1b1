#include "launch/job/failure.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <new>
#include <thread>

namespace shoal {
namespace {

constexpr std::chrono::milliseconds kLetRankZeroPrint{500};

/// No control characters but ends of lines: names from files may hold escape codes of terminals.
std::string printable(std::string text) {
  for (char& c : text) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f) c = ' ';
  }
  return text;
}

constexpr const char* kTrainingHint =
    "lower train.batch or raise train.accumulate, set train.recompute, spread experts over more "
    "parallel.expert_ranks, or start fewer ranks on this machine; `shoal check RECIPE --memory` "
    "estimates what a rank takes";
constexpr const char* kMemoryHint = "start more ranks, or use a machine with more memory";

/// The number of bytes in LibTorch's "you tried to allocate 4096 bytes"; nothing without one.
std::optional<int64_t> asked_bytes(const std::string& text) {
  const size_t at = text.find("tried to allocate ");
  if (at == std::string::npos) return std::nullopt;
  long bytes = 0;
  int end = 0;  // set where all of it is there
  std::sscanf(text.c_str() + at, "tried to allocate %ld bytes%n", &bytes, &end);
  return end > 0 ? std::optional<int64_t>(bytes) : std::nullopt;
}

/// The allocation that failed, in words; nothing if the error is another.
std::optional<std::string> failed_allocation(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const c10::Error& failed) {
    const std::string text = failed.what_without_backtrace();
    const bool is_memory = text.find("can't allocate memory") != std::string::npos ||
                           text.find("out of memory") != std::string::npos ||
                           text.find("not enough memory") != std::string::npos;
    if (!is_memory) return std::nullopt;
    const std::optional<int64_t> bytes = asked_bytes(text);
    if (!bytes) return "out of memory: " + text;  // a GPU's, whose text has all its numbers
    constexpr double kGiB = 1 << 30;
    return fmt::format("out of memory: {:.1f} GiB more were asked for ({} bytes)",
                       static_cast<double>(*bytes) / kGiB, *bytes);
  } catch (...) {
    return std::nullopt;
  }
}

}  // namespace

std::exception_ptr locate_allocation(const std::exception_ptr& error, const std::string& what) {
  const std::optional<std::string> failure = failed_allocation(error);
  if (!failure) return error;
  return std::make_exception_ptr(Error(ExitCode::kTopology, what + ": " + *failure, kTrainingHint));
}

Failure describe_failure(const std::exception_ptr& error, std::optional<int64_t> rank) {
  const std::string place = rank ? fmt::format("rank={}: ", *rank) : "";
  const auto line = [&place](ExitCode code, const std::string& what) {
    return Failure{code,
                   fmt::format("error[E{}] {}{}", static_cast<int>(code), place, printable(what))};
  };
  if (const auto failure = failed_allocation(error)) {
    return line(ExitCode::kTopology, *failure + "; " + kMemoryHint);
  }
  try {
    std::rethrow_exception(error);
  } catch (const ConfigError& known) {
    Failure failure{known.code(), ""};
    for (const std::string& text : known.lines()) {
      if (!failure.text.empty()) failure.text += '\n';
      failure.text += fmt::format("error[E{}] {}", static_cast<int>(known.code()), text);
    }
    return failure;
  } catch (const Error& known) {
    const std::string hint = known.hint().empty() ? "" : "; " + known.hint();
    return line(known.code(), known.what() + hint);
  } catch (const c10::Error& unexpected) {
    return line(ExitCode::kInternal, unexpected.what_without_backtrace());
  } catch (const std::exception& unexpected) {
    return line(ExitCode::kInternal, unexpected.what());
  } catch (...) {
    return line(ExitCode::kInternal, "an exception of unknown type");
  }
}

// mpirun sends the remaining ranks SIGCONT at once and SIGTERM a second later; if this rank left
// before rank 0, mpirun would cut off rank 0's message.
bool wait_for_end_of_job(std::chrono::milliseconds patience) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCONT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const auto whole = std::chrono::floor<std::chrono::seconds>(patience);
  const timespec timeout{whole.count(), std::chrono::nanoseconds(patience - whole).count()};
  return sigtimedwait(&signals, nullptr, &timeout) > 0;
}

ExitCode end_job(const std::exception_ptr& error, Communicator& world) {
  const bool is_alone = world.size() == 1;
  const Failure failure =
      describe_failure(error, is_alone ? std::nullopt : std::optional(world.rank()));
  if (world.rank() != 0) std::this_thread::sleep_for(kLetRankZeroPrint);
  std::fputs((failure.text + "\n").c_str(), stderr);
  std::fflush(stderr);
  if (!is_alone) world.abort(static_cast<int>(failure.code));
  return failure.code;
}

ExitCode run_on_ranks(Communicator& world, const std::function<ExitCode()>& work) {
  try {
    return work();
  } catch (...) {
    return end_job(std::current_exception(), world);
  }
}

}  // namespace shoal
