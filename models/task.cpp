#include "models/task.h"

#include <limits>

namespace shoal {

double mean_of(const std::vector<NamedSum>& totals, std::string_view name) {
  for (const NamedSum& total : totals) {
    if (total.name == name) return total.sum / total.weight;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace shoal
