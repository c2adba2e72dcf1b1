#include "runtime/text/tokenize.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/files/data_file.h"
#include "runtime/files/sha256.h"

namespace shoal {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr const char* kSourceHint = "check the path of the text file";
constexpr int kTokenizersVersion = 1;  // to be raised when a tokenizer's ids change

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// Encodes one file into a cache.
class FileEncoder {
 public:
  FileEncoder(const std::string& path, const Tokenizer& tokenizer, Documents documents,
              TokenFileWriter& writer)
      : path_(path), tokenizer_(tokenizer), documents_(documents), writer_(writer) {}

  void run() {
    const File file(::fdopen(open_data_file(path_, kSourceHint), "rb"), std::fclose);
    size_t next_try = 1;
    while (const size_t got = read_on(file)) {
      hash_.update(std::string_view(text_).substr(text_.size() - got));
      if (text_.size() < next_try) continue;
      const bool has_lines = documents_ == Documents::kLines;
      const size_t length = has_lines ? text_.rfind('\n') + 1 : tokenizer_.complete_prefix(text_);
      if (length == 0 && !has_lines) require_short();
      encode(length);
      // Looking again after each piece would take quadratic time.
      next_try = length == 0 ? std::min(2 * text_.size(), kLongestUncutText + 1) : 1;
    }
    encode(text_.size());
    if (documents_ == Documents::kFiles) end_document();
  }

  /// Once, after run().
  TokenFileInfo::Source source() {
    return {std::filesystem::path(path_).filename().string(), encoded_, hash_.hex()};
  }
  int64_t words() const { return words_.words(); }
  int64_t text_bytes() const { return text_bytes_; }

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  /// Appends up to kPieceBytes to text_, and returns how many; 0 at the end of the file.
  size_t read_on(const File& file) {
    const size_t before = text_.size();
    text_.resize(before + kPieceBytes);
    const size_t got = std::fread(text_.data() + before, 1, kPieceBytes, file.get());
    if (std::ferror(file.get()) != 0) {
      throw DataError(path_ + ": cannot be read: " + std::strerror(errno));
    }
    text_.resize(before + got);
    return got;
  }
  void encode(size_t length) {
    std::string_view part = std::string_view(text_).substr(0, length);
    if (documents_ != Documents::kLines) append(part);
    for (size_t end; documents_ == Documents::kLines && !part.empty(); part.remove_prefix(end)) {
      end = std::min(part.find('\n'), part.size() - 1) + 1;
      encode_line(part.substr(0, end));
    }
    text_.erase(0, length);
    encoded_ += static_cast<int64_t>(length);
  }
  void encode_line(std::string_view line) {
    ++line_;
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto text = json.find("text");
    if (text == json.end() || !text->is_string()) {
      throw DataError(fmt::format("{}:{}: not a JSON object with a string \"text\"", path_, line_),
                      "only with documents: lines a line must be one");
    }
    append(text->get_ref<const std::string&>());
    words_.add("\n");
    end_document();
  }
  void append(std::string_view text) {
    ids_.clear();
    try {
      tokenizer_.encode(text, ids_);
    } catch (const BadText& bad) {
      const int64_t byte = encoded_ + static_cast<int64_t>(bad.offset());
      throw DataError(line_ > 0 ? fmt::format("{}:{}: {}", path_, line_, bad.what())
                                : fmt::format("{}: byte {}: {}", path_, byte, bad.problem()),
                      bad.hint());
    }
    writer_.append(ids_);
    words_.add(text);
    text_bytes_ += std::ssize(text);
  }
  void end_document() { writer_.append({tokenizer_.end_of_text()}); }
  void require_short() const {
    if (text_.size() <= kLongestUncutText) return;
    throw DataError(
        fmt::format("{}: the tokenizer finds no place to cut the {} bytes from byte {} on", path_,
                    text_.size(), encoded_),
        "this does not look like text; break its lines, or use another tokenizer");
  }

  std::string path_;
  const Tokenizer& tokenizer_;
  Documents documents_;
  TokenFileWriter& writer_;
  Sha256 hash_;
  WordCounter words_;
  std::string text_;  // read and not encoded yet
  std::vector<int64_t> ids_;
  int64_t encoded_ = 0, text_bytes_ = 0;
  int64_t line_ = 0;  // of JSON
};

/// Encodes the files one after the other; the rest is for TokenFileWriter::finish.
TokenFileInfo encode_files(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                           Documents documents, TokenFileWriter& writer) {
  if (documents != Documents::kNone && tokenizer.end_of_text() < 0) {
    throw DataError(
        "documents end with <|endoftext|>, which tokenizer " + tokenizer.identity() + " lacks",
        "use one that has it, such as gpt2 with GPT-2's files, or documents: none");
  }
  TokenFileInfo info{.tokenizer = tokenizer.identity(),
                     .vocabulary = tokenizer.vocabulary(),
                     .sources = {},
                     .special_tokens = tokenizer.special_tokens(),
                     .documents = std::string(enum_name(documents))};
  for (const std::string& path : paths) {
    FileEncoder encoder(path, tokenizer, documents, writer);
    encoder.run();
    info.sources.push_back(encoder.source());
    info.num_bytes += encoder.text_bytes();
    info.num_words += encoder.words();
  }
  return info;
}

/// Held from construction to destruction by one process of all that name it.
class FileLock {
 public:
  explicit FileLock(const std::string& path) : path_(path) {
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    int locked = descriptor_ < 0 ? -1 : ::flock(descriptor_, LOCK_EX);
    while (descriptor_ >= 0 && locked != 0 && errno == EINTR) {
      locked = ::flock(descriptor_, LOCK_EX);
    }
    if (locked == 0) return;
    const std::string why = std::generic_category().message(errno);
    if (descriptor_ >= 0) ::close(descriptor_);
    throw StorageError(fmt::format("lock '{}': {}", path, why), kCacheHint);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() { ::close(descriptor_); }
  /// Call it when whoever gets the lock later has nothing left to do.
  void remove(FileSystem& files) { files.remove_file(path_); }

  static constexpr const char* kCacheHint =
      "set XDG_CACHE_HOME to a folder that can be written, or make a cache with `shoal data "
      "tokenize` and name it in the recipe";

 private:
  std::string path_;
  int descriptor_ = -1;
};

/// Whether a cache in the cache folder exists; it is complete then.
bool is_made(const std::string& cache) {
  return data_file_exists(cache) && data_file_exists(token_info_path(cache));
}

/// What processes of this machine left that were killed. Only for the holder of the lock.
void remove_temporaries(const std::string& cache, FileSystem& files) {
  const std::string prefix = temporary_token_prefix(cache);
  std::error_code failed;
  std::vector<std::string> left;
  const std::filesystem::path folder = std::filesystem::path(cache).parent_path();
  for (std::filesystem::directory_iterator it(folder, failed), end; !failed && it != end;
       it.increment(failed)) {
    if (it->path().string().starts_with(prefix)) left.push_back(it->path().string());
  }
  for (const std::string& path : left) files.remove_file(path);
}

void make_cache(FileSystem& files, const std::string& cache,
                const std::function<TokenFileInfo(TokenFileWriter&)>& encode) {
  try {
    remove_temporaries(cache, files);
    TokenFileWriter writer(files, cache);
    writer.finish(encode(writer));
  } catch (const StorageError& error) {
    throw StorageError(error.what(), FileLock::kCacheHint);
  }
}

TokenFile open_cache(const std::string& cache) {
  try {
    return TokenFile(cache);
  } catch (const DataError& error) {
    throw DataError(error.what(), fmt::format("remove {} and {}; it is made again", cache,
                                              token_info_path(cache)));
  }
}

void make_folders(const std::string& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (!failed) return;
  throw StorageError(fmt::format("mkdir '{}': {}", folder, failed.message()), FileLock::kCacheHint);
}

}  // namespace

void WordCounter::add(std::string_view text) {
  if (text.empty()) return;
  // The end of a word is a blank behind another byte, or the end of the text: count the beginnings.
  words_ += !is_in_word_ && !is_blank(text[0]);
  int64_t begun = 0;
  for (size_t i = 1; i < text.size(); ++i) begun += is_blank(text[i - 1]) && !is_blank(text[i]);
  words_ += begun;
  is_in_word_ = !is_blank(text.back());
}

TokenFileInfo tokenize_files(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                             FileSystem& files, const std::string& out, Documents documents) {
  try {
    TokenFileWriter writer(files, out);
    return writer.finish(encode_files(paths, tokenizer, documents, writer));
  } catch (const StorageError& error) {
    throw StorageError(error.what(),
                       "check that the folder exists, can be written and has space left, or write "
                       "to another one");
  }
}

CachedTokens cached_tokens(const std::string& path, const Tokenizer& tokenizer, FileSystem& files,
                           const std::string& folder, Documents documents) {
  const std::string sha256 = sha256_hex(MappedFile(path, kSourceHint).text());
  const std::string key =
      sha256_hex(fmt::format("{}\n{}\n{}{}", sha256, tokenizer.cache_identity(), kTokenizersVersion,
                             documents == Documents::kNone ? "" : enum_name(documents)));
  const std::string cache = fmt::format("{}/{}{}", folder, key.substr(0, 32), kTokenFileEnding);
  double seconds = 0.0;
  if (!is_made(cache)) {
    make_folders(folder);
    FileLock lock(cache + ".lock");
    if (!is_made(cache)) {
      const auto start = std::chrono::steady_clock::now();
      make_cache(files, cache, [&](TokenFileWriter& writer) {
        TokenFileInfo info = encode_files({path}, tokenizer, documents, writer);
        if (info.sources[0].sha256 == sha256) return info;
        throw DataError(path + ": changed while it was read",
                        "start again once nothing writes to the file");
      });
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    lock.remove(files);
  }
  return {open_cache(cache), seconds};
}

}  // namespace shoal
