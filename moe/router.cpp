#include "moe/router.h"

namespace shoal {

Assignments Router::assign(const Routing& routing, const Capacity& capacity) {
  return limit(routing, capacity);
}

}  // namespace shoal
