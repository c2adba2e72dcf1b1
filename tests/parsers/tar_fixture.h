#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace shoal::testing {

/// A header block, written field by field as POSIX describes it.
struct TarHeader {
  std::string name;
  std::string size = "00000000000";  ///< of 12 bytes at most
  char type = '0';
  std::string magic = std::string("ustar\00000", 8);
  std::string prefix = "";

  std::string block() const {
    std::string bytes(512, '\0');
    const auto put = [&bytes](size_t offset, const std::string& text) {
      std::ranges::copy(text, bytes.begin() + static_cast<std::ptrdiff_t>(offset));
    };
    put(0, name);
    put(100, "0000644");
    put(124, size);
    put(148, "        ");
    put(156, std::string(1, type));
    put(257, magic);
    put(345, prefix);
    unsigned sum = 0;
    for (const char c : bytes) sum += static_cast<unsigned char>(c);
    char text[8];
    std::snprintf(text, sizeof(text), "%06o", sum);
    put(148, std::string(text, 7));
    return bytes;
  }
};

inline std::string octal(size_t number) {
  char text[12];
  std::snprintf(text, sizeof(text), "%011zo", number);
  return text;
}

/// A header and the bytes it describes, up to the border of a block.
inline std::string tar_member(TarHeader header, const std::string& bytes) {
  header.size = octal(bytes.size());
  return header.block() + bytes + std::string((512 - bytes.size() % 512) % 512, '\0');
}

inline std::string tar_trailer() { return std::string(1024, '\0'); }

/// An archive of plain files.
inline std::string tar_of(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string archive;
  for (const auto& [name, bytes] : files) archive += tar_member({.name = name}, bytes);
  return archive + tar_trailer();
}

}  // namespace shoal::testing
