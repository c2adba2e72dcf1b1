#include "runtime/text/bpe_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace shoal {
namespace {

constexpr size_t kNumBytes = 256;
/// One past the last character that stands for a byte.
constexpr uint32_t kNumSymbols = 0x144;
constexpr int16_t kNoByte = -1;

constexpr bool is_printable(size_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

/// The byte of each character.
constexpr std::array<int16_t, kNumSymbols> make_alphabet() {
  std::array<int16_t, kNumSymbols> byte_of{};
  for (int16_t& byte : byte_of) byte = kNoByte;
  size_t next = 0x100;
  for (size_t byte = 0; byte < kNumBytes; ++byte) {
    byte_of[is_printable(byte) ? byte : next++] = static_cast<int16_t>(byte);
  }
  return byte_of;
}
constexpr std::array<int16_t, kNumSymbols> kByteOf = make_alphabet();

/// Reads a text for the JSON parser and counts, so that events have places.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

struct Entry {
  std::string symbols;
  size_t offset = 0;  ///< in the file, behind the token
  uint64_t id = 0;
};

/// Takes the parser's events and accepts exactly an object of integers, so that a hostile file
/// costs no more memory than its entries. Returning false ends the parse.
class TokensReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TokensReader(std::string_view text) : text_(text), reached_(text.data()) {}

  /// Empty, or what is wrong.
  std::string read() {
    const CountingIterator begin(text_.data(), &reached_);
    const CountingIterator end(text_.data() + text_.size(), &reached_);
    nlohmann::json::sax_parse(begin, end, this);
    return std::move(problem_);
  }
  std::vector<Entry> entries;

  bool start_object(size_t /*elements*/) override {
    return std::exchange(is_open_, true) ? refuse("an object") : true;
  }
  bool end_object() override { return true; }
  bool key(string_t& name) override {
    if (entries.size() == kMostBpeTokens) {
      return fail(fmt::format("more than {} tokens", kMostBpeTokens));
    }
    entries.push_back({std::move(name), static_cast<size_t>(reached_ - text_.data()), 0});
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (!is_open_) return refuse("a number");
    entries.back().id = value;
    return true;
  }
  bool start_array(size_t /*elements*/) override { return refuse("a list"); }
  bool end_array() override { return refuse("a list"); }
  bool string(string_t& /*value*/) override { return refuse("a string"); }
  bool null() override { return refuse("null"); }
  bool boolean(bool /*value*/) override { return refuse("true or false"); }
  bool number_integer(number_integer_t /*value*/) override { return refuse("a negative number"); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    return refuse("a number that is not an integer");
  }
  bool binary(binary_t& /*value*/) override { return refuse("binary data"); }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    return fail(fmt::format("byte {}: not JSON", position == 0 ? 0 : position - 1));
  }

 private:
  std::string_view text_;
  const char* reached_;
  bool is_open_ = false;
  std::string problem_;

  bool fail(std::string text) {
    problem_ = std::move(text);
    return false;
  }
  bool refuse(const char* what) {
    if (!is_open_) return fail(fmt::format("{}, where an object {{token: id}} is expected", what));
    return fail(fmt::format("byte {}: the id of '{}' is {}, not an integer", entries.back().offset,
                            shorten_symbols(entries.back().symbols), what));
  }
};

/// The tokens in the order of their ids; the problem goes to `problem`.
std::vector<std::string> order_by_id(const std::vector<Entry>& entries, std::string& problem) {
  std::vector<std::string> tokens(entries.size());
  std::unordered_map<std::string_view, uint64_t> seen;
  for (const Entry& entry : entries) {
    const auto name = [&entry] {
      return fmt::format("byte {}: token '{}'", entry.offset, shorten_symbols(entry.symbols));
    };
    std::optional<std::string> bytes = bytes_of_symbols(entry.symbols);
    if (!bytes.has_value()) {
      problem = name() +
                (entry.symbols.empty() ? " is empty" : " has a character that stands for no byte");
    } else if (!seen.emplace(entry.symbols, entry.id).second) {
      problem = name() + " appears twice";
    } else if (entry.id >= entries.size()) {
      problem = fmt::format("{} has id {}; ids of {} tokens are 0 to {}", name(), entry.id,
                            entries.size(), entries.size() - 1);
    } else if (!tokens[entry.id].empty()) {
      problem = fmt::format("{} has id {}, as a token before it", name(), entry.id);
    }
    if (!problem.empty()) return {};
    tokens[entry.id] = std::move(*bytes);
  }
  return tokens;
}

/// Empty, or the first byte that is no token.
std::string find_missing_byte(const std::vector<std::string>& tokens) {
  std::array<bool, kNumBytes> is_there{};
  for (const std::string& token : tokens) {
    if (token.size() == 1) is_there[static_cast<uint8_t>(token[0])] = true;
  }
  const auto* missing = std::find(is_there.begin(), is_there.end(), false);
  if (missing == is_there.end()) return "";
  return fmt::format("no token is the single byte 0x{:02X}; a byte-level BPE has all 256",
                     missing - is_there.begin());
}

}  // namespace

std::optional<std::string> bytes_of_symbols(std::string_view symbols) {
  if (symbols.empty()) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i < symbols.size(); ++i) {
    uint32_t symbol = static_cast<uint8_t>(symbols[i]);
    // All characters that stand for bytes have one or two.
    if (symbol >= 0xE0) return std::nullopt;
    if (symbol >= 0x80 && i + 1 < symbols.size()) {
      symbol = (symbol & 0x1F) << 6 | (static_cast<uint8_t>(symbols[++i]) & 0x3F);
    }
    if (symbol >= kNumSymbols || kByteOf[symbol] == kNoByte) return std::nullopt;
    bytes += static_cast<char>(kByteOf[symbol]);
  }
  return bytes;
}

void check_bpe_text(std::string_view text, const std::string& path) {
  if (text.size() > kLargestBpeFile) {
    throw DataError(fmt::format("{}: more than {} bytes", path, kLargestBpeFile));
  }
  const size_t valid = check_utf8(text).valid;
  if (valid < text.size()) {
    throw DataError(fmt::format("{}: byte {}: not UTF-8: 0x{:02X}", path, valid,
                                static_cast<uint8_t>(text[valid])));
  }
}

std::string shorten_symbols(std::string_view text) {
  constexpr size_t kLongest = 60;
  if (text.size() <= kLongest) return std::string(text);
  text = text.substr(0, kLongest);
  return std::string(text.substr(0, check_utf8(text).valid)) + "…";
}

std::vector<std::string> parse_bpe_tokens(std::string_view json, const std::string& path) {
  check_bpe_text(json, path);
  // The JSON parser takes a zero byte for the end of its input.
  const size_t zero = json.find('\0');
  std::string problem =
      zero == std::string_view::npos ? "" : fmt::format("byte {}: not JSON", zero);
  TokensReader reader(json);
  if (problem.empty()) problem = reader.read();
  std::vector<std::string> tokens;
  if (problem.empty()) tokens = order_by_id(reader.entries, problem);
  if (problem.empty()) problem = find_missing_byte(tokens);
  if (!problem.empty()) {
    throw DataError(fmt::format("{}: {}", path, problem),
                    "a vocabulary is a JSON object of tokens and ids: GPT-2's encoder.json, or a "
                    "vocab.json of Hugging Face");
  }
  return tokens;
}

}  // namespace shoal
