#include "parallel/comm/on_rank_zero.h"

#include <fmt/format.h>

#include <exception>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace shoal {
namespace {

/// What `work` threw, as text for the other ranks; empty if it did not throw.
template <typename Work>
std::string failure_of(const Work& work) {
  const auto encode = [](ExitCode code, const std::string& hint, const char* what) {
    return fmt::format("{}\n{}\n{}", static_cast<int>(code), hint, what);
  };
  try {
    work();
    return "";
  } catch (const Error& error) {
    return encode(error.code(), error.hint(), error.what());
  } catch (const std::exception& error) {
    return encode(ExitCode::kInternal, "", error.what());
  }
}

/// Throws what failure_of put into text, with `where` behind it.
[[noreturn]] void rethrow(const std::string& failure, const std::string& where) {
  const size_t code_end = failure.find('\n');
  const size_t hint_end = failure.find('\n', code_end + 1);
  const auto code = static_cast<ExitCode>(std::stoi(failure.substr(0, code_end)));
  const std::string hint = failure.substr(code_end + 1, hint_end - code_end - 1);
  const std::string what = failure.substr(hint_end + 1) + where;
  switch (code) {
    case ExitCode::kRecipe:
    case ExitCode::kTopology:
      throw ConfigError(what, code);
    case ExitCode::kData:
      throw DataError(what, hint);
    case ExitCode::kCheckpoint:
      throw CheckpointError(what, hint);
    case ExitCode::kStorage:
      throw StorageError(what, hint);
    default:
      throw Error(code, what, hint);
  }
}

}  // namespace

std::string on_rank_zero(Communicator& world, const std::function<std::string()>& work) {
  std::string text, failure;
  if (world.rank() == 0) failure = failure_of([&] { text = work(); });
  failure = broadcast_text(world, std::move(failure));
  if (!failure.empty()) rethrow(failure, "");
  return broadcast_text(world, std::move(text));
}

void on_every_rank(Communicator& world, const std::function<void()>& work) {
  const std::vector<std::string> failures = gather_text(world, failure_of(work));
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    if (failures[rank].empty()) continue;
    rethrow(failures[rank], failures.size() > 1 ? fmt::format(" (on rank {})", rank) : "");
  }
}

}  // namespace shoal
