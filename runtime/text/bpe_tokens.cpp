#include "runtime/text/bpe_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <unordered_set>
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

DataError not_tokens(const std::string& path, const std::string& what) {
  return DataError(fmt::format("{}: {}", path, what),
                   "a vocabulary is a JSON object of tokens and ids: GPT-2's encoder.json, or a "
                   "vocab.json of Hugging Face");
}

using Entries = std::vector<std::pair<std::string, uint64_t>>;

/// Reads an object of integers. Whatever else is met ends it, so that a hostile file costs no more
/// memory than its entries.
Entries read_entries(std::string_view text, const std::string& path) {
  using Json = nlohmann::json;
  using Event = Json::parse_event_t;
  Entries entries;
  const auto take = [&](int depth, Event event, Json& value) {
    if (event == Event::object_end || (event == Event::object_start && depth == 0)) return true;
    if (event == Event::key) {
      if (entries.size() == kMostBpeTokens) {
        throw not_tokens(path, fmt::format("more than {} tokens", kMostBpeTokens));
      }
      entries.emplace_back(value.get<std::string>(), 0);
      return true;
    }
    if (entries.empty()) throw not_tokens(path, "not an object {token: id}");
    if (event != Event::value || !value.is_number_unsigned()) {
      throw not_tokens(path, fmt::format("the id of '{}' is not an integer from 0 on",
                                         shorten_symbols(entries.back().first)));
    }
    entries.back().second = value.get<uint64_t>();
    return false;  // not kept twice
  };
  size_t bad = text.find('\0');  // which the parser takes for the end
  try {
    if (bad == text.npos) {
      [[maybe_unused]] const Json nothing = Json::parse(text, take);
    }
  } catch (const Json::parse_error& error) {
    bad = error.byte - std::min<size_t>(error.byte, 1);
  } catch (const Json::out_of_range&) {
    throw not_tokens(path, "a number is too large");
  }
  if (bad != text.npos) throw not_tokens(path, fmt::format("byte {}: not JSON", bad));
  return entries;
}

/// The tokens in the order of their ids.
std::vector<std::string> order_by_id(const Entries& entries, const std::string& path) {
  std::vector<std::string> tokens(entries.size());
  std::unordered_set<std::string_view> seen;
  for (const auto& [symbols, id] : entries) {
    const auto refuse = [&](const std::string& what) {
      throw not_tokens(path, fmt::format("token '{}' {}", shorten_symbols(symbols), what));
    };
    std::optional<std::string> bytes = bytes_of_symbols(symbols);
    if (symbols.empty()) refuse("is empty");
    if (!bytes) refuse("has a character that stands for no byte");
    if (!seen.emplace(symbols).second) refuse("appears twice");
    if (id >= entries.size()) {
      refuse(fmt::format("has id {}; ids of {} tokens are 0 to {}", id, entries.size(),
                         entries.size() - 1));
    }
    if (!tokens[id].empty()) refuse(fmt::format("has id {}, as a token before it", id));
    tokens[id] = std::move(*bytes);
  }
  return tokens;
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
  std::vector<std::string> tokens = order_by_id(read_entries(json, path), path);
  for (size_t byte = 0; byte < kNumBytes; ++byte) {
    if (std::ranges::find(tokens, std::string(1, static_cast<char>(byte))) != tokens.end())
      continue;
    throw not_tokens(path,
                     fmt::format("no token is the single byte 0x{:02X}; a byte-level BPE has all "
                                 "256",
                                 byte));
  }
  return tokens;
}

}  // namespace shoal
