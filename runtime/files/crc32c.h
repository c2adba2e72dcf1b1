#pragma once

#include <cstdint>
#include <string_view>

namespace shoal {

/// CRC-32C (Castagnoli polynomial, RFC 3720) of `bytes`, continued from `crc`, the value of the
/// bytes before (0 at the beginning). Uses the processor's instruction if it has one. Detects
/// accidents, not tampering.
uint32_t crc32c(std::string_view bytes, uint32_t crc = 0);

/// crc32c from a table alone; the reference.
uint32_t crc32c_portable(std::string_view bytes, uint32_t crc = 0);

}  // namespace shoal
