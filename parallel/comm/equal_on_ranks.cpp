#include "parallel/comm/equal_on_ranks.h"

#include <map>

#include "runtime/base/error.h"

namespace shoal {
namespace {

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
