#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/files/file_system.h"
#include "runtime/text/token_file.h"
#include "runtime/text/tokenizer.h"

namespace shoal {

/// Longest part of a text that a tokenizer may require at once. It bounds the memory: BPE takes
/// about 100 bytes for each byte of one word, 0.4 GB for this much text.
inline constexpr size_t kLongestUncutText = size_t{4} << 20;

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
/// concatenated without separators. Throws StorageError, and DataError if a file is missing, has
/// bytes that the tokenizer refuses, or cannot be cut within kLongestUncutText.
TokenFileInfo tokenize_files(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                             FileSystem& files, const std::string& out);

/// The token cache of `path` in `folder`, made if missing: its name is a hash of the file's bytes
/// and of Tokenizer::cache_identity (tokenizer and versions). The first process of a machine makes
/// it under a lock, which ends with the process, while the others wait. Several machines that
/// share the folder may each make it, with equal bytes.
struct CachedTokens {
  TokenFile file;
  double seconds = 0.0;  ///< that this process took to make it; 0 if it existed
};
/// Throws as tokenize_files does, and DataError if the file changes meanwhile.
CachedTokens cached_tokens(const std::string& path, const Tokenizer& tokenizer, FileSystem& files,
                           const std::string& folder);

}  // namespace shoal
