#include "launch/job/failure.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <ctime>
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

}  // namespace

Failure describe_failure(const std::exception_ptr& error, int64_t rank) {
  const auto line = [rank](ExitCode code, const std::string& what) {
    return Failure{
        code, fmt::format("error[E{}] rank={}: {}", static_cast<int>(code), rank, printable(what))};
  };
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
  const Failure failure = describe_failure(error, world.rank());
  if (world.rank() != 0) std::this_thread::sleep_for(kLetRankZeroPrint);
  std::fputs((failure.text + "\n").c_str(), stderr);
  std::fflush(stderr);
  if (world.size() > 1) world.abort(static_cast<int>(failure.code));
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
