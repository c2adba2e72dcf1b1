#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.h"

/// Runs work that may fail on some ranks only, such as reading files, and throws its error on all
/// ranks. Otherwise the other ranks would hang in their next collective.
namespace shoal {

/// Collective. Calls `work` on rank 0 and returns its text on every rank. Rethrows its Error on
/// every rank, with class, text, exit code and hint; another exception as Error with code 70.
std::string on_rank_zero(Communicator& world, const std::function<std::string()>& work);

/// Collective. Calls `work` on every rank; collective calls in `work` must come before anything
/// that may throw on one rank alone, or the others would hang. If it throws on some ranks, every
/// rank rethrows the exception of the lowest of them like on_rank_zero. In a world of several ranks
/// "(on rank N)" is appended to the text.
void on_every_rank(Communicator& world, const std::function<void()>& work);

/// (name, value) pairs that must be equal on all ranks, e.g. {"binary", "1.2.0 a1b2c3"}.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Collective. Throws Error (exit 14, version skew) on every rank if a fact differs, and lists who
/// has what: `binary: ranks 0-2 have X; rank 3 has Y`. All ranks pass the same names in order.
void require_equal_on_ranks(Communicator& comm, const Facts& facts);

}  // namespace shoal
