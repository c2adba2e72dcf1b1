#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/options/registry.h"

namespace shoal {

/// A text that a tokenizer refuses. Callers that know the text's file catch it and throw a
/// DataError with the file's name and the offset in it.
class BadText : public DataError {
 public:
  BadText(size_t offset, const std::string& problem, const std::string& hint)
      : DataError("byte " + std::to_string(offset) + " of the text: " + problem, hint),
        offset_(offset),
        problem_(problem) {}
  /// Offset of the first wrong byte in the text passed to encode.
  size_t offset() const { return offset_; }
  /// The problem, without the offset.
  const std::string& problem() const { return problem_; }

 private:
  size_t offset_;
  std::string problem_;
};

/// What special tokens such as "<|endoftext|>" become where a text spells them.
enum class SpecialTokens {
  kError,   ///< the text is refused
  kText,    ///< several ids, like other text
  kEncode,  ///< their own ids
};

template <>
struct EnumNames<SpecialTokens> {
  static constexpr std::array names{std::pair{SpecialTokens::kError, "error"},
                                    std::pair{SpecialTokens::kText, "text"},
                                    std::pair{SpecialTokens::kEncode, "encode"}};
};

/// Converts text to token ids and back. Chosen by the recipe key `tokenizer.name`. Free of torch.
class Tokenizer {
 public:
  struct Context {
    bool reads_files = true;  ///< false: only vocabulary() is needed, as in `shoal check`
    SpecialTokens special_tokens = SpecialTokens::kText;
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "tokenizer";

  virtual ~Tokenizer() = default;
  /// Number of token ids; at most 65,536.
  virtual int64_t vocabulary() const = 0;
  /// The name in recipes and, for tokenizers with files, the SHA-256 of their content. Tokenizers
  /// of equal identity give equal ids, if what cache_identity adds is equal, too.
  virtual std::string identity() const = 0;
  /// identity() plus everything else that ids depend on, such as the version of a library; part of
  /// the name of token caches in the user's cache folder.
  virtual std::string cache_identity() const { return identity(); }
  /// Appends the ids of a text. Thread-safe. Throws BadText, which leaves `ids` unchanged.
  virtual void encode(std::string_view text, std::vector<int64_t>& ids) const = 0;
  /// Number of bytes at the start of `text` that can be encoded now: whatever follows, the ids of
  /// this prefix and of the rest, encoded separately, are the ids of the whole. 0: more text is
  /// needed. Used to encode a long text piece by piece. Never throws BadText: the prefix may
  /// include bytes that encode refuses.
  virtual size_t complete_prefix(std::string_view text) const = 0;
  /// The bytes of a token. Throws std::out_of_range for an unknown id.
  virtual std::string_view bytes_of(int64_t id) const = 0;
  /// Context::special_tokens as a word, if special tokens in texts are looked for; else "".
  virtual std::string special_tokens() const { return ""; }
  /// Id of the end-of-text token, or -1.
  virtual int64_t end_of_text() const { return -1; }
  /// The files that the tokenizer needs, also if Context::reads_files is false.
  virtual std::vector<std::string> files() const { return {}; }
  /// True if the ids of a text are its bytes: then a text file needs no token cache.
  virtual bool ids_are_bytes() const { return false; }

  std::string decode(const std::vector<int64_t>& ids) const {
    std::string text;
    for (const int64_t id : ids) text += bytes_of(id);
    return text;
  }
};

}  // namespace shoal
