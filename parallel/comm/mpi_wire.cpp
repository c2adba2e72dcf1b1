#include "parallel/comm/mpi_wire.h"

namespace shoal {

std::optional<WireLayout> wire_layout(const RowCounts& rows, int64_t bytes_per_row, int64_t limit) {
  const int64_t total = sum(rows);
  WireLayout layout;
  if (bytes_per_row > 0 && total > limit / bytes_per_row) {
    if (total > limit || bytes_per_row > limit) return std::nullopt;
    layout.unit_bytes = bytes_per_row;
  }
  int64_t displacement = 0;
  for (const int64_t count : rows) {
    const int64_t units = count * bytes_per_row / layout.unit_bytes;
    layout.counts.push_back(static_cast<int>(units));
    layout.displacements.push_back(static_cast<int>(displacement));
    displacement += units;
  }
  return layout;
}

}  // namespace shoal
