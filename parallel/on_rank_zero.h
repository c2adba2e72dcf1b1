#pragma once

#include <functional>
#include <string>

#include "parallel/communicator.h"

namespace shoal {

/// Calls `work` on rank 0 and returns its text on every rank. Collective. An Error thrown there is
/// thrown on every rank, of the same class and with the same text, code and hint.
std::string on_rank_zero(Communicator& world, const std::function<std::string()>& work);

}  // namespace shoal
