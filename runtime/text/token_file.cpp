#include "runtime/text/token_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "runtime/base/error.h"

namespace shoal {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr int32_t kMagic = 20240520;
constexpr int32_t kVersion = 1;
constexpr int64_t kInfoFormat = 1;
constexpr size_t kHeaderNumbers = kTokenHeaderBytes / sizeof(int32_t);
constexpr size_t kTokenBytes = sizeof(uint16_t);
constexpr size_t kMostInfoBytes = size_t{16} << 20;
constexpr size_t kBufferBytes = size_t{1} << 20;

using Header = std::array<int32_t, kHeaderNumbers>;

constexpr const char* kRemake =
    "make it again: shoal data tokenize FILES --tokenizer … --out X.bin";

DataError wrong(const std::string& path, const std::string& what) {
  return DataError(path + ": " + what, kRemake);
}

void check_header(const Header& header, const std::string& path) {
  if (header[0] != kMagic) {
    throw wrong(path, fmt::format("not a token cache: the number at byte 0 is {}, not {}",
                                  header[0], kMagic));
  }
  if (header[1] != kVersion) {
    throw wrong(path,
                fmt::format("version {} at byte 4; version {}, tokens of 16 bits, can be read",
                            header[1], kVersion));
  }
  if (header[2] < 0) throw wrong(path, fmt::format("{} tokens by the header, byte 8", header[2]));
  const auto* surplus = std::find_if(header.begin() + 3, header.end(), [](int32_t n) { return n; });
  if (surplus != header.end()) {
    throw wrong(path, fmt::format("the number at byte {} of the header is {}, not 0",
                                  4 * (surplus - header.begin()), *surplus));
  }
}

int64_t count_of(const nlohmann::json& json, const char* key, const std::string& path) {
  const auto found = json.find(key);
  const int64_t count =
      found != json.end() && found->is_number_integer() ? found->get<int64_t>() : -1;
  if (count < 0) throw wrong(path, fmt::format("'{}' must be an integer >= 0", key));
  return count;
}

std::string text_of(const nlohmann::json& json, const char* key, const std::string& path) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) {
    throw wrong(path, fmt::format("'{}' must be a string", key));
  }
  return found->get<std::string>();
}

TokenFileInfo read_info_file(const std::string& side) {
  const MappedFile file(side, kRemake);
  if (file.bytes().size() > kMostInfoBytes) throw wrong(side, "too large for a cache's side file");
  return parse_token_info(file.text(), side);
}

std::optional<TokenFileInfo> read_info(const std::string& path, size_t num_tokens) {
  const std::string side = token_info_path(path);
  if (!data_file_exists(side)) return std::nullopt;
  TokenFileInfo info = read_info_file(side);
  if (info.num_tokens == static_cast<int64_t>(num_tokens)) return info;
  throw wrong(side, fmt::format("counts {} tokens, but {} holds {}: they are of two caches",
                                info.num_tokens, path, num_tokens));
}

std::string temporary_path(const std::string& path) {
  static std::atomic<int64_t> num_made = 0;
  return fmt::format("{}{}.{}", temporary_token_prefix(path), ::getpid(), num_made++);
}

}  // namespace

std::string token_info_path(const std::string& path) { return path + ".json"; }

std::string temporary_token_prefix(const std::string& path) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {"unknown"};
  // '@' ends the host's name, so that those of web1 are not those of web10.
  return fmt::format("{}.{}@", path, host.data());
}

std::string emit_token_header(int64_t num_tokens) {
  Header header{kMagic, kVersion, static_cast<int32_t>(num_tokens)};
  return {reinterpret_cast<const char*>(header.data()), sizeof(header)};
}

std::span<const uint16_t> parse_token_file(std::span<const std::byte> bytes,
                                           const std::string& path) {
  if (bytes.size() < kTokenHeaderBytes) {
    throw wrong(path, fmt::format("ends at byte {}, within the header of {} bytes that a token "
                                  "cache begins with",
                                  bytes.size(), kTokenHeaderBytes));
  }
  Header header;
  std::memcpy(header.data(), bytes.data(), sizeof(header));
  check_header(header, path);
  const auto num_tokens = static_cast<size_t>(header[2]);
  const size_t end = kTokenHeaderBytes + num_tokens * kTokenBytes;
  if (bytes.size() < end) {
    throw wrong(path, fmt::format("cut short: it ends at byte {}, its {} tokens at byte {}",
                                  bytes.size(), num_tokens, end));
  }
  if (bytes.size() > end) {
    throw wrong(path, fmt::format("{} bytes too many, from byte {} on: it has {} tokens",
                                  bytes.size() - end, end, num_tokens));
  }
  const std::byte* first = bytes.data() + kTokenHeaderBytes;
  return {reinterpret_cast<const uint16_t*>(first), num_tokens};
}

bool is_token_cache(const std::string& path) {
  int32_t first = 0;
  std::ifstream file = open_unless_pipe(path);
  return file.read(reinterpret_cast<char*>(&first), sizeof(first)) && first == kMagic;
}

bool is_token_info(const std::string& path) {
  try {
    read_info_file(path);
    return true;
  } catch (const DataError&) {
    return false;
  }
}

std::string emit_token_info(const TokenFileInfo& info) {
  nlohmann::ordered_json json{
      {"format", kInfoFormat},     {"tokenizer", info.tokenizer}, {"vocabulary", info.vocabulary},
      {"tokens", info.num_tokens}, {"bytes", info.num_bytes},     {"words", info.num_words},
  };
  json["special_tokens"] = info.special_tokens;
  json["documents"] = info.documents;
  json["sources"] = nlohmann::ordered_json::array();
  for (const TokenFileInfo::Source& source : info.sources) {
    json["sources"].push_back(
        {{"name", source.name}, {"size", source.size}, {"sha256", source.sha256}});
  }
  // Names of files need not be UTF-8.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

TokenFileInfo parse_token_info(std::string_view text, const std::string& path) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw wrong(path, "not a JSON object");
  const int64_t format = count_of(json, "format", path);
  if (format != kInfoFormat) {
    throw wrong(path, fmt::format("format {}; format {} can be read", format, kInfoFormat));
  }
  TokenFileInfo info{.tokenizer = text_of(json, "tokenizer", path),
                     .vocabulary = count_of(json, "vocabulary", path),
                     .num_tokens = count_of(json, "tokens", path),
                     .num_bytes = count_of(json, "bytes", path),
                     .num_words = count_of(json, "words", path),
                     .sources = {}};
  if (json.contains("special_tokens")) info.special_tokens = text_of(json, "special_tokens", path);
  if (json.contains("documents")) info.documents = text_of(json, "documents", path);
  const auto sources = json.find("sources");
  if (sources == json.end() || !sources->is_array()) throw wrong(path, "'sources' must be a list");
  for (const nlohmann::json& source : *sources) {
    if (!source.is_object()) throw wrong(path, "'sources' must be a list of objects");
    info.sources.push_back({text_of(source, "name", path), count_of(source, "size", path),
                            text_of(source, "sha256", path)});
  }
  return info;
}

TokenFile::TokenFile(const std::string& path)
    : file_(path, kRemake),
      tokens_(parse_token_file(file_.bytes(), path)),
      info_(read_info(path, tokens_.size())) {}

void TokenFile::require_below(int64_t vocabulary) const {
  constexpr size_t kBlock = 4096;  // of a length known when compiled, which is vectorised
  if (vocabulary > 0xFFFF) return;
  const auto limit = static_cast<uint16_t>(vocabulary);
  const auto is_wrong = [limit](uint16_t token) { return token >= limit; };
  size_t first = 0;
  for (; first + kBlock <= tokens_.size(); first += kBlock) {
    uint16_t largest = 0;
    for (size_t i = 0; i < kBlock; ++i) largest = std::max(largest, tokens_[first + i]);
    if (is_wrong(largest)) break;
  }
  const auto bad =
      std::find_if(tokens_.begin() + static_cast<int64_t>(first), tokens_.end(), is_wrong);
  if (bad == tokens_.end()) return;
  const int64_t index = bad - tokens_.begin();
  throw DataError(
      fmt::format("{}: token {} (byte {}) has id {}, must be below the vocabulary of {}", path(),
                  index, kTokenHeaderBytes + index * static_cast<int64_t>(kTokenBytes), *bad,
                  vocabulary),
      info_ && info_->vocabulary <= vocabulary
          ? kRemake
          : "set data.tokenizer to the tokenizer that the cache was made with");
}

TokenFileWriter::TokenFileWriter(FileSystem& files, std::string path)
    : files_(files),
      path_(std::move(path)),
      partial_path_(temporary_path(path_) + ".tmp"),
      partial_info_path_(temporary_path(path_) + ".json.tmp"),
      file_(std::make_unique<OutputFile>(files, partial_path_, FileSystem::Mode::kReplace)),
      buffer_(emit_token_header(0)) {}

TokenFileWriter::~TokenFileWriter() {
  if (is_finished_) return;
  file_.reset();
  files_.remove_file(partial_path_);
  files_.remove_file(partial_info_path_);
  if (is_side_file_named_) files_.remove_file(token_info_path(path_));
}

void TokenFileWriter::append(const std::vector<int64_t>& ids) {
  num_tokens_ += std::ssize(ids);
  if (num_tokens_ > kMostTokens) {
    throw DataError(fmt::format("{}: a token cache holds {} tokens at most", path_, kMostTokens),
                    "split the text into several files and make a cache of each");
  }
  uint64_t all = 0;
  for (const int64_t id : ids) {
    all |= static_cast<uint64_t>(id);
    const auto token = static_cast<uint16_t>(id);
    buffer_.append(reinterpret_cast<const char*>(&token), sizeof(token));
  }
  if (all > 0xFFFF) throw std::logic_error("a tokenizer gave an id above 65535");
  if (buffer_.size() >= kBufferBytes) flush();
}

void TokenFileWriter::flush() {
  file_->write(buffer_);
  buffer_.clear();
}

TokenFileInfo TokenFileWriter::finish(TokenFileInfo info) {
  info.num_tokens = num_tokens_;
  flush();
  file_->close();
  // The count is known only now; the sync is of the whole file.
  file_ = std::make_unique<OutputFile>(files_, partial_path_, FileSystem::Mode::kPatch);
  file_->write(emit_token_header(num_tokens_));
  file_->sync();
  file_->close();
  OutputFile side(files_, partial_info_path_, FileSystem::Mode::kReplace);
  const std::string text = emit_token_info(info);
  side.write(text);
  side.sync();
  side.close();
  commit(text);
  return info;
}

void TokenFileWriter::commit(const std::string& info) {
  // Another machine may have made the same cache and read it already: it stays in place then.
  const bool is_same = text_of_file(token_info_path(path_)) == info;
  if (!is_same) remove_path(files_, path_);
  rename_path(files_, partial_info_path_, token_info_path(path_));
  is_side_file_named_ = !is_same;
  rename_path(files_, partial_path_, path_);
  is_finished_ = true;
  sync_directory(files_, parent_path(path_));
}

}  // namespace shoal
