#include "parallel/comm/mpi_wire.h"

#include <numeric>

namespace shoal {

WireMessage wire_message(int64_t rows, int64_t bytes_per_row, int64_t limit) {
  if (bytes_per_row == 0 || rows <= limit / bytes_per_row) {
    return {1, static_cast<int>(rows * bytes_per_row)};
  }
  TORCH_CHECK(rows <= limit && bytes_per_row <= limit, "MPI counts end at ", limit,
              ": cannot move ", rows, " rows of ", bytes_per_row, " bytes in one call");
  return {bytes_per_row, static_cast<int>(rows)};
}

WireLayout wire_layout(const RowCounts& rows, int64_t bytes_per_row, int64_t limit) {
  const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  WireLayout layout;
  layout.unit_bytes = wire_message(total, bytes_per_row, limit).unit_bytes;
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
