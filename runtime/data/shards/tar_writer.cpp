#include "runtime/data/shards/tar.h"

#include <fmt/format.h>

#include <utility>

namespace shoal {
namespace {

constexpr size_t kMostName = 100, kMostPrefix = 155;
constexpr int64_t kMostOctalSize = (int64_t{1} << 33) - 1;  // eleven digits

/// Where a header keeps a name: {prefix, rest}; both empty if there is no room for it.
std::pair<std::string, std::string> split_name(const std::string& name) {
  if (name.size() <= kMostName) return {"", name};
  const size_t slash = name.find('/', name.size() - kMostName - 1);
  if (slash == name.npos || slash == 0 || slash > kMostPrefix) return {};
  return {name.substr(0, slash), name.substr(slash + 1)};
}

std::string ustar_header(const std::pair<std::string, std::string>& name, int64_t size, char type) {
  std::string header(kTarBlockBytes, '\0');
  const auto put = [&header](size_t offset, std::string_view text) {
    header.replace(offset, text.size(), text);
  };
  put(0, name.second);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", size));
  put(136, "00000000000");
  put(148, "        ");  // the checksum, as it is counted
  put(156, std::string_view(&type, 1));
  put(257, std::string_view("ustar\00000", 8));
  put(345, name.first);
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum) + std::string(1, '\0'));
  return header;
}

/// "LENGTH KEY=VALUE\n", the length counting its own digits.
std::string pax_record(std::string_view key, const std::string& value) {
  const size_t rest = key.size() + value.size() + 3;
  size_t length = rest;
  while (length != rest + std::to_string(length).size()) {
    length = rest + std::to_string(length).size();
  }
  return fmt::format("{} {}={}\n", length, key, value);
}

}  // namespace

std::string tar_header(const std::string& name, int64_t size) {
  const auto place = split_name(name);
  const bool has_room = !place.second.empty(), is_small = size <= kMostOctalSize;
  std::string records;
  if (!has_room) records += pax_record("path", name);
  if (!is_small) records += pax_record("size", std::to_string(size));
  std::string extended;
  if (!records.empty()) {
    const auto bytes = std::ssize(records);
    extended = ustar_header({"", "PaxHeader"}, bytes, 'x') + records + tar_padding(bytes);
  }
  return extended + ustar_header(has_room ? place : std::pair{"", name.substr(0, kMostName)},
                                 is_small ? size : 0, '0');
}

std::string tar_padding(int64_t size) {
  return std::string(static_cast<size_t>((kTarBlockBytes - size % kTarBlockBytes) % kTarBlockBytes),
                     '\0');
}

std::string tar_end() { return std::string(2 * kTarBlockBytes, '\0'); }

}  // namespace shoal
