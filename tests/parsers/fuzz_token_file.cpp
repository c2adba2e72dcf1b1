#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/text/token_file.h"

/// Input: a token cache; the same without the zeros that end its header; or a side file. Whatever
/// it is, reading ends with tokens that lie within the file, or a side file that is written and
/// read back to the same, or with a DataError.
namespace shoal {
namespace {

constexpr size_t kNumbersOfHeader = 12;  // bytes of magic number, version and count

void read_tokens(const std::string& text) {
  const std::vector<char> bytes(text.begin(), text.end());  // even address, and nothing behind
  try {
    const auto tokens = parse_token_file(std::as_bytes(std::span(bytes)), "fuzz");
    if (kTokenHeaderBytes + 2 * tokens.size() != bytes.size()) std::abort();
    std::string again = emit_token_header(static_cast<int64_t>(tokens.size()));
    for (const uint16_t token : tokens) {
      again.append(reinterpret_cast<const char*>(&token), sizeof(token));
    }
    if (again != text) std::abort();
  } catch (const DataError&) {
  }
}

void read_info(const std::string& text) {
  TokenFileInfo info;
  try {
    info = parse_token_info(text, "fuzz");
  } catch (const DataError&) {
    return;
  }
  if (parse_token_info(emit_token_info(info), "again") != info) std::abort();
}

}  // namespace
}  // namespace shoal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  shoal::read_tokens(text);
  shoal::read_info(text);
  if (size < shoal::kNumbersOfHeader) return 0;
  shoal::read_tokens(text.insert(shoal::kNumbersOfHeader,
                                 shoal::kTokenHeaderBytes - shoal::kNumbersOfHeader, '\0'));
  return 0;
}
