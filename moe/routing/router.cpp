#include "moe/routing/router.h"

#include <fmt/format.h>

namespace shoal {

void check_choices(int64_t k, int64_t num_units, const std::string& path, Problems& problems) {
  if (k <= num_units) return;
  problems.add(path + ".k", fmt::format("{} units a token, but there are only {}", k, num_units));
}

}  // namespace shoal
