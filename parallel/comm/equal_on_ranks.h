#pragma once

#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.h"

namespace shoal {

/// Names and values that must be equal on all ranks, e.g. {"binary", "1.2.0 a1b2c3"}.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Collective. Throws Error (exit 14, version skew) on every rank, listing which ranks have which
/// value of each fact that differs: `binary: ranks 0-2 have X; rank 3 has Y`.
void require_equal_on_ranks(Communicator& comm, const Facts& facts);

}  // namespace shoal
