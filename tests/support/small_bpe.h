#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

/// Byte-level BPEs small enough to know by heart, in the format of GPT-2's files.
namespace shoal::testing {

/// The character that stands for a byte in the files.
inline std::string symbol_of(unsigned char byte) {
  static const std::map<unsigned char, std::string> symbols = [] {
    std::map<unsigned char, std::string> made;
    unsigned next = 256;
    for (unsigned b = 0; b < 256; ++b) {
      const bool is_itself = (b > 32 && b < 127) || (b > 160 && b != 173);
      const unsigned code = is_itself ? b : next++;
      std::string& symbol = made[static_cast<unsigned char>(b)];
      if (code < 128) {
        symbol = static_cast<char>(code);
      } else {
        symbol = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
      }
    }
    return made;
  }();
  return symbols.at(byte);
}

inline std::string symbols_of(const std::string& bytes) {
  std::string symbols;
  for (const char byte : bytes) symbols += symbol_of(static_cast<unsigned char>(byte));
  return symbols;
}

/// A text as a JSON string.
inline std::string quoted(const std::string& text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') json += '\\';
    json += c;
  }
  return json + "\"";
}

/// The text of a vocabulary: bytes 0 to 255 have ids 0 to 255, `more` those from 256 on.
inline std::string vocab_json(const std::vector<std::string>& more) {
  std::string json = "{";
  for (unsigned b = 0; b < 256; ++b) {
    json += (b > 0 ? ", " : "") + quoted(symbol_of(static_cast<unsigned char>(b))) + ": " +
            std::to_string(b);
  }
  for (size_t i = 0; i < more.size(); ++i) {
    json += ", " + quoted(symbols_of(more[i])) + ": " + std::to_string(256 + i);
  }
  return json + "}";
}

using BytePairs = std::vector<std::pair<std::string, std::string>>;

/// The text of merges.
inline std::string merges_text(const BytePairs& pairs) {
  std::string text = "#version: 0.2\n";
  for (const auto& [left, right] : pairs) text += symbols_of(left) + " " + symbols_of(right) + "\n";
  return text;
}

/// What each merge makes, in order.
inline std::vector<std::string> results_of(const BytePairs& pairs) {
  std::vector<std::string> results;
  for (const auto& [left, right] : pairs) results.push_back(left + right);
  return results;
}

}  // namespace shoal::testing
