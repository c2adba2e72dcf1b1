#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.h"

/// Work that fails on all ranks if it fails on one, so that none waits for a rank that has left.
namespace shoal {

/// Calls `work` on rank 0 and returns its text on every rank. Collective. An Error thrown there is
/// thrown on every rank, of the same class and with the same text, code and hint; another exception
/// as an Error with code 70.
std::string on_rank_zero(Communicator& world, const std::function<std::string()>& work);

/// Calls `work`, which makes no collective calls, on every rank. Collective. What the first of the
/// ranks that failed threw is thrown on all, as above, with the rank appended to the text.
void on_every_rank(Communicator& world, const std::function<void()>& work);

/// Names and values that must be equal on all ranks, e.g. {"binary", "1.2.0 a1b2c3"}.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Collective. Throws Error (exit 14, version skew) on every rank, listing which ranks have which
/// value of each fact that differs: `binary: ranks 0-2 have X; rank 3 has Y`.
void require_equal_on_ranks(Communicator& comm, const Facts& facts);

}  // namespace shoal
