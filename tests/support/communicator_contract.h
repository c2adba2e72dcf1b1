#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace shoal::testing {

/// One promise of Communicator as a check that works on any implementation and any size from 1 to
/// 4. Every rank calls it; failures are GoogleTest failures on the rank that sees them.
struct ContractCheck {
  std::string name;
  std::function<void(Communicator& comm)> check;
  friend std::ostream& operator<<(std::ostream& out, const ContractCheck& check) {
    return out << check.name;
  }
};

/// What an implementation does with bfloat16.
enum class Bfloat16 { kMoved, kMovedAndReduced };

/// All of them. Each leaves the communicator ready for the next.
std::vector<ContractCheck> communicator_contract(Bfloat16 bfloat16 = Bfloat16::kMoved);

}  // namespace shoal::testing
