#include "parallel/comm/on_rank_zero.h"

#include <fmt/format.h>

#include <exception>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace shoal {
namespace {

using Json = nlohmann::json;

/// What `work` threw, as text for the other ranks; empty if it did not throw.
template <typename Work>
std::string failure_text(const Work& work) {
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

/// Throws what failure_text put into text, with `where` after it.
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

/// `rank 3 has`, `ranks 0-2, 5 have`.
std::string who_has(const std::vector<int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
    if (last > i) text.append("-").append(std::to_string(ranks[last]));
    i = last + 1;
  }
  return text + (ranks.size() == 1 ? " has " : " have ");
}

}  // namespace

std::string on_rank_zero(Communicator& world, const std::function<std::string()>& work) {
  std::string text, failure;
  if (world.rank() == 0) failure = failure_text([&] { text = work(); });
  failure = broadcast_text(world, std::move(failure));
  if (!failure.empty()) rethrow(failure, "");
  return broadcast_text(world, std::move(text));
}

void on_every_rank(Communicator& world, const std::function<void()>& work) {
  const std::vector<std::string> failures = gather_text(world, failure_text(work));
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    if (failures[rank].empty()) continue;
    rethrow(failures[rank], failures.size() > 1 ? fmt::format(" (on rank {})", rank) : "");
  }
}

void require_equal_on_ranks(Communicator& comm, const Facts& facts) {
  if (comm.size() == 1) return;
  std::string text;
  for (const auto& [name, value] : facts) {
    const std::vector<std::string> values = gather_text(comm, value);
    std::map<std::string, std::vector<int64_t>> ranks_of;
    for (size_t rank = 0; rank < values.size(); ++rank) {
      ranks_of[values[rank]].push_back(static_cast<int64_t>(rank));
    }
    if (ranks_of.size() == 1) continue;
    text += (text.empty() ? "" : "\n") + name + ":";
    for (const auto& [held, ranks] : ranks_of) {
      text += (&held == &ranks_of.begin()->first ? " " : "; ") + who_has(ranks) + held;
    }
  }
  if (text.empty()) return;
  throw Error(ExitCode::kVersionSkew, "ranks differ\n" + text,
              "start all ranks from the same installation and with the same command");
}

}  // namespace shoal
