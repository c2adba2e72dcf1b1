#pragma once

#include <climits>
#include <cstdint>
#include <vector>

#include "parallel/comm/communicator.h"

namespace shoal {

/// One message of rows: `count` units of `unit_bytes` bytes each.
struct WireMessage {
  int64_t unit_bytes = 1;
  int count = 0;
};

/// Bytes while they fit an int, else whole rows. Throws as wire_layout.
WireMessage wire_message(int64_t rows, int64_t bytes_per_row, int64_t limit = INT_MAX);

/// Rows in MPI's 32-bit counts and displacements: in bytes while all of them fit, else in whole
/// rows, so that buffers beyond 2^31 bytes move in one call.
struct WireLayout {
  int64_t unit_bytes = 1;  ///< 1, or the bytes of a row
  std::vector<int> counts;
  std::vector<int> displacements;
};

/// `limit` is the largest number MPI can hold (tests lower it). Throws TORCH_CHECK if the rows do
/// not fit either way: more than `limit` rows, or a row of more than `limit` bytes.
WireLayout wire_layout(const RowCounts& rows, int64_t bytes_per_row, int64_t limit = INT_MAX);

}  // namespace shoal
