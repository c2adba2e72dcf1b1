#include "launch/on_rank_zero.h"

#include <fmt/format.h>

#include "runtime/error.h"

namespace shoal {
namespace {

constexpr char kDone = 'd', kFailed = 'f';

[[noreturn]] void throw_error(ExitCode code, const std::string& what, const std::string& hint) {
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
  std::string own;
  if (world.rank() == 0) {
    try {
      own = kDone + work();
    } catch (const Error& error) {
      own = fmt::format("{}{}\n{}\n{}", kFailed, static_cast<int>(error.code()), error.hint(),
                        error.what());
    }
  }
  const std::string text = gather_text(world, own)[0];
  if (text[0] == kDone) return text.substr(1);
  const size_t code_end = text.find('\n');
  const size_t hint_end = text.find('\n', code_end + 1);
  throw_error(static_cast<ExitCode>(std::stoi(text.substr(1, code_end - 1))),
              text.substr(hint_end + 1), text.substr(code_end + 1, hint_end - code_end - 1));
}

}  // namespace shoal
