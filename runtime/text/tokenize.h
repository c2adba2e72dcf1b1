#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/files/file_system.h"
#include "runtime/text/token_file.h"
#include "runtime/text/tokenizer.h"

namespace shoal {

/// Longest part of a text that a tokenizer may require at once. It bounds the memory: BPE takes
/// about 100 bytes for each byte of one word, 0.4 GB for this much text.
inline constexpr size_t kLongestUncutText = size_t{4} << 20;

/// What a document is in files of text. An end-of-text token follows each document.
enum class Documents {
  kNone,   ///< there are no documents, nothing is put between files
  kFiles,  ///< a file
  kLines,  ///< the value of "text" in a line of JSON
};

template <>
inline constexpr std::array kEnumWords<Documents>{"none", "files", "lines"};

/// Options of files of text that are encoded; token caches stay as they are.
struct TextFormat {
  SpecialTokens special_tokens = SpecialTokens::kError;
  Documents documents = Documents::kNone;

  static constexpr auto fields() {
    return std::tuple{
        field("special_tokens", &TextFormat::special_tokens,
              "a special token spelled out in a text or prompt, such as <|endoftext|>: error "
              "rejects it, encode encodes it as its single ID, text splits it like other text",
              on_resume(OnResume::kFree)),  // the tokens are in the data's fingerprint
        field("documents", &TextFormat::documents,
              "what an end-of-text token follows: none: nothing; files: each text file; lines: "
              "each line, a JSON object whose \"text\" is a document. Attention is not masked at "
              "document boundaries",
              on_resume(OnResume::kFree))};
  }
};

/// Counts words: runs of bytes that are not white space (blank, \t, \n, \r, \v, \f).
class WordCounter {
 public:
  /// Counts the next part of a text.
  void add(std::string_view text);
  int64_t words() const { return words_; }

 private:
  int64_t words_ = 0;
  bool is_in_word_ = false;
};

/// Encodes text files into the token cache `out` in bounded memory: each text on its own, the ids
/// concatenated. Throws StorageError, and DataError if a file is missing, has bytes or special
/// tokens that the tokenizer refuses, cannot be cut within kLongestUncutText, or has a line that is
/// no document, and for documents without an end-of-text token.
TokenFileInfo tokenize_files(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                             FileSystem& files, const std::string& out,
                             Documents documents = Documents::kNone);

/// The token cache of `path` in `folder`, made if missing: its name is a hash of the file's bytes
/// of Tokenizer::cache_identity (tokenizer and versions) and of the documents. The first process of
/// a machine makes it under a lock, which ends with the process, while the others wait. Several
/// machines that share the folder may each make it, with equal bytes.
struct CachedTokens {
  TokenFile file;
  double seconds = 0.0;  ///< that this process took to make it; 0 if it existed
};
/// Throws as tokenize_files does, and DataError if the file changes meanwhile.
CachedTokens cached_tokens(const std::string& path, const Tokenizer& tokenizer, FileSystem& files,
                           const std::string& folder, Documents documents = Documents::kNone);

}  // namespace shoal
