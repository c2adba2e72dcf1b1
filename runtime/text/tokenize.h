#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/files/file_system.h"
#include "runtime/text/token_file.h"
#include "runtime/text/tokenizer.h"

namespace shoal {

/// Longest stretch of a text that a tokenizer may leave uncut. It bounds the memory: BPE takes
/// about 100 bytes for each byte of one word, 0.4 GB for a text without a place to cut.
inline constexpr size_t kLongestUncutText = size_t{4} << 20;

/// Counts runs of bytes other than blank, tab, newline, carriage return, vertical tab and form
/// feed.
class WordCounter {
 public:
  /// The next part of a text.
  void add(std::string_view text);
  int64_t words() const { return words_; }

 private:
  int64_t words_ = 0;
  bool is_in_word_ = false;
};

/// Encodes files of text into the token cache `out`, piece by piece: memory is bounded. Each file
/// is encoded on its own, and the ids are put one after the other, nothing in between. Throws:
/// DataError if a file is missing, holds what the tokenizer cannot take (byte named), or cannot be
/// cut for kLongestUncutText; StorageError.
TokenFileInfo tokenize_files(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                             FileSystem& files, const std::string& out);

/// A token cache of `path` in `folder`, made if there is none: its name is a hash of the file's
/// bytes and of Tokenizer::cache_identity. Of several processes of a machine the first one makes it
/// under a lock, which ends with the process; the others wait for it. Several machines that share
/// the folder may each make it, with equal bytes.
struct CachedTokens {
  TokenFile file;
  double seconds = 0.0;  ///< that this process took to make it; 0: it was there
};
/// Throws: as tokenize_files, and as TokenFile; DataError if the file changes meanwhile.
CachedTokens cached_tokens(const std::string& path, const Tokenizer& tokenizer, FileSystem& files,
                           const std::string& folder);

}  // namespace shoal
