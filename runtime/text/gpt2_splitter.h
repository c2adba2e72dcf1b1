#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;  // of PCRE2
struct pcre2_real_match_data_8;

namespace shoal {

/// Splits text into words by GPT-2's pattern; no token of GPT-2 crosses word borders. Safe from
/// several threads at once. Letters and numbers are those of PCRE2's version of Unicode.
///
/// Source: Radford et al. 2019, encoder.py:
/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
class Gpt2Splitter {
 public:
  using Code = std::unique_ptr<pcre2_real_code_8, void (*)(pcre2_real_code_8*)>;
  using Match = std::unique_ptr<pcre2_real_match_data_8, void (*)(pcre2_real_match_data_8*)>;

  Gpt2Splitter();

  /// Iterates over the words of a text, in order; together they are the text.
  class Words {
   public:
    /// `text` must be well-formed UTF-8; text and splitter must outlive this object.
    Words(const Gpt2Splitter& splitter, std::string_view text);
    /// Gets the next word. False at the end of the text.
    bool next(std::string_view& word);

   private:
    const pcre2_real_code_8* code_;
    std::string_view text_;
    size_t at_ = 0;
    Match match_;
  };

  /// Returns the last position where `text` can be cut so that, whatever follows it, the words of
  /// both pieces are those of the whole; 0 if there is none. If the search meets invalid UTF-8,
  /// returns the size of `text`: the caller then encodes all of it and finds the mistake.
  size_t last_cut(std::string_view text) const;

 private:
  Code words_, cuts_;
};

/// Version of Unicode that PCRE2 uses to classify letters and numbers.
std::string unicode_version();

}  // namespace shoal
