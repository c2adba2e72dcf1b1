#pragma once

#include <cstdint>
#include <string_view>

namespace shoal {

/// CRC-32C checksum (Castagnoli polynomial, RFC 3720) of `bytes`. To checksum a stream piece by
/// piece, pass the result of the pieces before as `crc`, 0 at the beginning. Uses the processor's
/// instruction if it has one. Detects accidents, not tampering.
uint32_t crc32c(std::string_view bytes, uint32_t crc = 0);

/// Computes crc32c by a table, without the processor's instruction; the reference in tests.
uint32_t crc32c_portable(std::string_view bytes, uint32_t crc = 0);

}  // namespace shoal
