#include "runtime/text/bpe_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/files/data_file.h"
#include "runtime/files/sha256.h"

namespace shoal {
namespace {

constexpr std::string_view kVersionLine = "#version";
constexpr const char* kFilesHint =
    "tokenizer.vocab and tokenizer.merges are paths of vocab.json and merges.txt, or of "
    "encoder.json and vocab.bpe";

class MergesReader {
 public:
  explicit MergesReader(const std::vector<std::string>& tokens) : is_made_(tokens.size()) {
    for (size_t id = 0; id < tokens.size(); ++id) {
      ids_.emplace(tokens[id], static_cast<int32_t>(id));
      is_made_[id] = tokens[id].size() == 1;
    }
  }

  /// Empty, or what is wrong with the line.
  std::string add(std::string_view line) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      return fmt::format("'{}' is not two tokens with a space between them", shorten_symbols(line));
    }
    std::string bytes;
    std::array<int32_t, 2> ids{};
    const std::array parts{line.substr(0, space), line.substr(space + 1)};
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::optional<std::string> part = bytes_of_symbols(parts[i]);
      const auto found = part.has_value() ? ids_.find(*part) : ids_.end();
      if (found == ids_.end()) {
        return fmt::format("'{}' is not in the vocabulary", shorten_symbols(parts[i]));
      }
      ids[i] = found->second;
      if (!is_made_[static_cast<size_t>(ids[i])]) {
        return fmt::format("'{}' is neither a byte nor made by a line before",
                           shorten_symbols(parts[i]));
      }
      bytes += *part;
    }
    const auto result = ids_.find(bytes);
    if (result == ids_.end()) {
      return fmt::format("'{}{}' is not in the vocabulary", shorten_symbols(parts[0]),
                         shorten_symbols(parts[1]));
    }
    if (!pairs_.insert(std::pair(ids[0], ids[1])).second) {
      return fmt::format("'{}' appears twice", shorten_symbols(line));
    }
    is_made_[static_cast<size_t>(result->second)] = true;
    merges.push_back({ids[0], ids[1], result->second});
    return "";
  }

  std::vector<BpeMerge> merges;

 private:
  std::unordered_map<std::string_view, int32_t> ids_;
  std::vector<bool> is_made_;
  std::set<std::pair<int32_t, int32_t>> pairs_;
};

void append_number(std::string& bytes, uint64_t number) {
  for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>((number >> shift) & 0xFF);
}

}  // namespace

std::vector<BpeMerge> parse_bpe_merges(std::string_view text,
                                       const std::vector<std::string>& tokens,
                                       const std::string& path) {
  check_bpe_text(text, path);
  MergesReader reader(tokens);
  for (size_t begin = 0, number = 1; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (number == 1 && line.starts_with(kVersionLine)) continue;
    const std::string problem = reader.add(line);
    if (!problem.empty()) throw DataError(fmt::format("{}:{}: {}", path, number, problem));
  }
  return std::move(reader.merges);
}

BpeVocabulary read_bpe_vocabulary(const std::string& tokens_path, const std::string& merges_path) {
  BpeVocabulary vocabulary;
  const MappedFile tokens(tokens_path, kFilesHint), merges(merges_path, kFilesHint);
  vocabulary.tokens = parse_bpe_tokens(tokens.text(), tokens_path);
  vocabulary.merges = parse_bpe_merges(merges.text(), vocabulary.tokens, merges_path);
  return vocabulary;
}

std::string hash_bpe_vocabulary(const BpeVocabulary& vocabulary) {
  std::string bytes;
  append_number(bytes, vocabulary.tokens.size());
  for (const std::string& token : vocabulary.tokens) {
    append_number(bytes, token.size());
    bytes += token;
  }
  for (const BpeMerge& merge : vocabulary.merges) {
    append_number(bytes, static_cast<uint64_t>(merge.left));
    append_number(bytes, static_cast<uint64_t>(merge.right));
  }
  return sha256_hex(bytes);
}

}  // namespace shoal
