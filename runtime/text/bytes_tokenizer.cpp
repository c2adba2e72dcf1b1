#include <array>

#include "runtime/text/tokenizer.h"

namespace shoal {
namespace {

constexpr size_t kByteTokens = 256;

constexpr std::array<char, kByteTokens> every_byte() {
  std::array<char, kByteTokens> bytes{};
  for (size_t i = 0; i < kByteTokens; ++i) bytes[i] = static_cast<char>(i);
  return bytes;
}
constexpr std::array<char, kByteTokens> kEveryByte = every_byte();

/// Each byte is a token, whose id is its value. Takes any text, UTF-8 or not.
class BytesTokenizer : public Tokenizer {
 public:
  using Options = NoOptions;
  explicit BytesTokenizer(const Options& /*options*/) {}

  int64_t vocabulary() const override { return kByteTokens; }
  std::string identity() const override { return "bytes"; }
  bool ids_are_bytes() const override { return true; }
  void encode(std::string_view text, std::vector<int64_t>& ids) const override {
    const size_t before = ids.size();
    ids.resize(before + text.size());
    for (size_t i = 0; i < text.size(); ++i) ids[before + i] = static_cast<uint8_t>(text[i]);
  }
  size_t complete_prefix(std::string_view text) const override { return text.size(); }
  std::string_view bytes_of(int64_t id) const override {
    return {&kEveryByte.at(static_cast<size_t>(id)), 1};
  }
};

const Registration<Tokenizer, BytesTokenizer> registered_bytes_tokenizer{
    "bytes", "each byte is a token: 256 ids"};

}  // namespace
}  // namespace shoal
