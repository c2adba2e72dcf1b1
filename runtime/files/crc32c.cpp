#include "runtime/files/crc32c.h"

#include <array>
#include <cstring>

namespace shoal {
namespace {

using Table = std::array<uint32_t, 256>;

constexpr Table make_table() {
  constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected
  Table table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

constexpr Table kTable = make_table();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc32c_sse42(std::string_view bytes, uint32_t crc) {
  uint64_t state = ~crc;
  while (bytes.size() >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    state = __builtin_ia32_crc32di(state, word);
    bytes.remove_prefix(8);
  }
  auto narrow = static_cast<uint32_t>(state);
  for (const char byte : bytes) {
    narrow = __builtin_ia32_crc32qi(narrow, static_cast<unsigned char>(byte));
  }
  return ~narrow;
}
#endif

}  // namespace

uint32_t crc32c_portable(std::string_view bytes, uint32_t crc) {
  crc = ~crc;
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  }
  return ~crc;
}

uint32_t crc32c(std::string_view bytes, uint32_t crc) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return crc32c_sse42(bytes, crc);
#endif
  return crc32c_portable(bytes, crc);
}

}  // namespace shoal
