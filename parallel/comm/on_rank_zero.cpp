#include "parallel/comm/on_rank_zero.h"

#include <fmt/format.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace shoal {
namespace {

using Json = nlohmann::json;

/// What `work` threw, as text for the other ranks; empty if it did not throw.
template <typename Work>
std::string failure_of(const Work& work) {
  const auto encode = [](ExitCode code, const std::string& hint, const char* what) {
    // A path or a library's text may be no UTF-8.
    return Json{{"code", code}, {"hint", hint}, {"what", what}}.dump(
        -1, ' ', false, Json::error_handler_t::replace);
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

/// Throws what failure_of put into text, with `where` after it.
[[noreturn]] void rethrow(const std::string& failure, const std::string& where) {
  const Json json = Json::parse(failure);
  const auto code = json.at("code").get<ExitCode>();
  const std::string hint = json.at("hint");
  const std::string what = json.at("what").get<std::string>() + where;
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
