#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.h"

/// Calls that fail on all ranks if they fail on one, so that no rank waits for one that has left.
namespace shoal {

/// Calls `work` on rank 0 and returns its text on every rank. Collective. An Error that `work`
/// throws is rethrown on every rank with its class, text, code and hint; any other exception
/// becomes an Error with code 70.
std::string on_rank_zero(Communicator& world, const std::function<std::string()>& work);

/// Calls `work`, which makes no collective calls, on every rank. Collective. The exception of the
/// first rank that failed is thrown on all, as by on_rank_zero, with the rank appended to its text.
void on_every_rank(Communicator& world, const std::function<void()>& work);

/// Names and values that must be equal on all ranks, e.g. {"binary", "1.2.0 a1b2c3"}.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Collective. Throws Error (exit 14, version skew) on every rank, listing which ranks have which
/// value of each fact that differs: `binary: ranks 0-2 have X; rank 3 has Y`.
void require_equal_on_ranks(Communicator& comm, const Facts& facts);

}  // namespace shoal
