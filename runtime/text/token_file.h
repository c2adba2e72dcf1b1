#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/files/data_file.h"
#include "runtime/files/file_system.h"

/// Token caches: files with the token ids of a text, to tokenize it only once. Format of llm.c:
/// a header of 256 int32 (magic number, version, number of tokens, zeros), then the tokens as
/// uint16, all little-endian. Free of torch.
namespace shoal {

inline constexpr std::string_view kTokenFileEnding = ".bin";
inline constexpr int64_t kTokenHeaderBytes = 1024;
inline constexpr int64_t kMostTokens = 0x7FFFFFFF;  ///< per file: the header counts in int32

/// Content of X.bin.json, the JSON side file that describes a token cache X.bin.
struct TokenFileInfo {
  struct Source {
    std::string name;  ///< without folders
    int64_t size = 0;  ///< bytes
    std::string sha256;
    bool operator==(const Source&) const = default;
  };
  std::string tokenizer;  ///< Tokenizer::identity(): name and hash of its files
  int64_t vocabulary = 0;
  int64_t num_tokens = 0;
  int64_t num_bytes = 0;  ///< of the texts
  int64_t num_words = 0;  ///< runs of bytes between white space
  std::vector<Source> sources;
  std::string special_tokens = {}, documents = {};  ///< as TextFormat's; "" in older side files
  bool operator==(const TokenFileInfo&) const = default;
};

/// Header of a cache of this many tokens.
std::string emit_token_header(int64_t num_tokens);
/// Returns the tokens of a whole cache file: a view into `bytes`, which must begin at an even
/// address. Throws DataError with `path` and the offset for a wrong magic number, version or size.
std::span<const uint16_t> parse_token_file(std::span<const std::byte> bytes,
                                           const std::string& path);

/// Path of a cache's side file.
std::string token_info_path(const std::string& path);
/// Prefix of the temporary files in which processes of this machine write a cache; a process id and
/// a number follow, so that no two writers share one.
std::string temporary_token_prefix(const std::string& path);

/// True if a file begins like a token cache; false if it cannot be read.
bool is_token_cache(const std::string& path);
/// True if a file is the side file of a token cache.
bool is_token_info(const std::string& path);

std::string emit_token_info(const TokenFileInfo& info);
/// Parses a side file. Throws DataError with `path`.
TokenFileInfo parse_token_info(std::string_view text, const std::string& path);

/// A token cache, mapped read-only and checked. Caches from llm.c's scripts have no side file, so
/// their tokenizer and text are unknown.
class TokenFile {
 public:
  /// Throws: DataError if cache or side file are invalid, or differ in the number of tokens.
  explicit TokenFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::span<const uint16_t> tokens() const { return tokens_; }
  const std::optional<TokenFileInfo>& info() const { return info_; }
  /// Reads all tokens. Throws DataError with the offset of the first id that is >= `vocabulary`.
  void require_below(int64_t vocabulary) const;

 private:
  MappedFile file_;
  std::span<const uint16_t> tokens_;
  std::optional<TokenFileInfo> info_;
};

/// Writes a token cache and its side file under temporary names. Once both are complete on the
/// disk, finish() removes an older cache at `path`, unless its side file equals the new one, and
/// renames the side file before the cache. A cache beside a side file thus always belongs to it,
/// even if the program is killed. The destructor removes unfinished files. Throws StorageError.
class TokenFileWriter {
 public:
  TokenFileWriter(FileSystem& files, std::string path);
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;
  ~TokenFileWriter();

  /// Appends ids, which must be below 65,536. Throws DataError past kMostTokens.
  void append(const std::vector<int64_t>& ids);
  int64_t num_tokens() const { return num_tokens_; }
  /// Completes both files. Sets info.num_tokens.
  TokenFileInfo finish(TokenFileInfo info);

 private:
  void flush();
  void commit(const std::string& info);

  FileSystem& files_;
  std::string path_, partial_path_, partial_info_path_;
  std::unique_ptr<OutputFile> file_;
  std::string buffer_;
  int64_t num_tokens_ = 0;
  bool is_side_file_named_ = false;
  bool is_finished_ = false;
};

}  // namespace shoal
