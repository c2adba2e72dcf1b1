#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/comm/communicator.h"

namespace shoal {

/// Rows in MPI's 32-bit counts and displacements: in bytes while all of them fit, else in whole
/// rows, so that buffers beyond 2^31 bytes move in one call.
struct WireLayout {
  int64_t unit_bytes = 1;  ///< 1, or the bytes of a row
  std::vector<int> counts;
  std::vector<int> displacements;
};

/// `limit` is the largest number MPI can hold. Nothing if the rows do not fit either way: more than
/// `limit` rows, or a row of more than `limit` bytes.
std::optional<WireLayout> wire_layout(const RowCounts& rows, int64_t bytes_per_row, int64_t limit);

/// make_mpi_communicator() of an MPI whose counts end at `limit` (tests lower it).
std::unique_ptr<Communicator> make_mpi_communicator(int64_t limit);

}  // namespace shoal
