#include "runtime/data/sequences/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <span>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/batch.h"
#include "runtime/random/random_stream.h"
#include "runtime/text/token_file.h"

// S tokens of a window
namespace shoal {
namespace {

constexpr const char* kTextHint = "data.path must be the folder of the files that the recipe names";

/// The tokens of files, one after the other, as they lie in memory.
class TokenStream {
 public:
  void add(std::span<const uint16_t> tokens) { add_part({tokens, {}}, tokens.size()); }
  void add(std::span<const uint8_t> bytes) { add_part({{}, bytes}, bytes.size()); }

  int64_t size() const { return end_of_part_.empty() ? 0 : end_of_part_.back(); }

  /// The tokens [first, first + count), all of which there are.
  void copy(int64_t first, int64_t count, int64_t* out) const {
    const auto found = std::ranges::upper_bound(end_of_part_, first);
    for (auto part = static_cast<size_t>(found - end_of_part_.begin()); count > 0; ++part) {
      const int64_t begin = part == 0 ? 0 : end_of_part_[part - 1];
      const int64_t taken = std::min(count, end_of_part_[part] - first);
      const auto copy_from = [&](const auto& tokens) {
        if (!tokens.empty()) std::copy_n(tokens.begin() + (first - begin), taken, out);
      };
      copy_from(parts_[part].tokens);
      copy_from(parts_[part].bytes);
      first += taken;
      count -= taken;
      out += taken;
    }
  }

 private:
  struct Part {  // one of the two
    std::span<const uint16_t> tokens;
    std::span<const uint8_t> bytes;
  };
  void add_part(Part part, size_t count) {
    if (count == 0) return;
    end_of_part_.push_back(size() + static_cast<int64_t>(count));
    parts_.push_back(part);
  }

  std::vector<Part> parts_;
  std::vector<int64_t> end_of_part_;  // tokens up to and with each part
};

/// The vocabulary as it is known before a file is opened.
int64_t vocabulary_of(const Choice<Tokenizer>& tokenizer) {
  return Registry<Tokenizer>::create(tokenizer, {.reads_files = false})->vocabulary();
}

std::shared_ptr<const Tokenizer> make_tokenizer(const TextOptions& options) {
  std::shared_ptr<const Tokenizer> made = Registry<Tokenizer>::create(
      options.tokenizer, {.special_tokens = options.format.special_tokens});
  const int64_t expected = vocabulary_of(options.tokenizer);
  if (made->vocabulary() == expected) return made;
  throw DataError(fmt::format("data.tokenizer: its files have {} tokens, and the model is made for "
                              "{}",
                              made->vocabulary(), expected),
                  fmt::format("set data.tokenizer.vocabulary={}", made->vocabulary()));
}

/// The files of a split, mapped and checked.
class TextFiles {
 public:
  TextFiles(const std::vector<std::string>& paths, const TextOptions& options,
            const std::string& cache_folder)
      : paths_(paths), options_(options), cache_folder_(cache_folder) {
    for (const std::string& path : paths) {
      if (path.ends_with(kTokenFileEnding)) {
        open_cache(path);
      } else if (tokenizer().ids_are_bytes()) {
        open_bytes(path);
      } else {
        open_text(path);
      }
    }
  }

  const TokenStream& stream() const { return stream_; }
  TextCounts counts() const {
    TextCounts counts{.tokens = stream_.size()};
    for (const MappedFile& text : texts_) {
      WordCounter words;
      words.add(text.text());
      counts.bytes += std::ssize(text.bytes());
      counts.words += words.words();
    }
    for (const TokenFile& cache : caches_) {
      if (!cache.info()) return {.tokens = counts.tokens};
      counts.bytes += cache.info()->num_bytes;
      counts.words += cache.info()->num_words;
    }
    return counts;
  }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::vector<std::string>& paths() const { return paths_; }
  /// Files, tokens, vocabulary, and the tokenizer where a file needed it.
  std::string fingerprint() const {
    std::vector<std::string> parts;
    for (const std::string& path : paths_) parts.push_back(file_fingerprint(path));
    for (const std::string& cache : made_caches_) {
      // Without its name, which depends on the version of a library.
      const std::string found = file_fingerprint(cache);
      parts.push_back("tokens" + found.substr(found.find(' ')));
    }
    parts.push_back(fmt::format("vocabulary {}", vocabulary_of(options_.tokenizer)));
    if (made_) parts.push_back("tokenizer " + made_->identity());
    return join_words(parts);
  }
  /// Identity of the tokenizer if a file needed it.
  std::string tokenizer_identity() const { return made_ ? made_->identity() : ""; }

 private:
  /// Made where it is needed first: caches without a side file do without its files.
  const Tokenizer& tokenizer() {
    if (!made_) made_ = make_tokenizer(options_);
    return *made_;
  }

  void open_cache(const std::string& path) {
    const TokenFile& file = caches_.emplace_back(path);
    if (file.info() && file.info()->tokenizer != tokenizer().identity()) {
      throw DataError(fmt::format("{}: a cache of another tokenizer: it was made with '{}', and "
                                  "data.tokenizer is '{}'",
                                  path, file.info()->tokenizer, tokenizer().identity()),
                      "set data.tokenizer to the one of the cache, or make the cache again with "
                      "`shoal data tokenize`");
    }
    const std::string wanted(enum_name(options_.format.documents));
    if (file.info() && wanted != "none" && file.info()->documents != wanted) {
      throw DataError(path + ": a cache that was not made with --documents " + wanted,
                      "make it again with `shoal data tokenize`, or set data.documents=none, which "
                      "takes it as it is");
    }
    if (!file.info()) {
      notes_.push_back(
          fmt::format("{}: no side file {}: its tokenizer is not checked; no bits per "
                      "byte, no word perplexity",
                      path, token_info_path(path)));
    }
    add_cache(file);
  }

  void add_cache(const TokenFile& file) {
    const int64_t vocabulary = vocabulary_of(options_.tokenizer);
    // Even if the side file names this tokenizer: the cache may be damaged.
    file.require_below(vocabulary);
    stream_.add(file.tokens());
  }

  void open_bytes(const std::string& path) {
    const std::span<const std::byte> bytes = texts_.emplace_back(path, kTextHint).bytes();
    stream_.add(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
  }

  void open_text(const std::string& path) {
    if (cache_folder_.empty()) {
      throw DataError(path +
                          ": there is no folder to keep its tokens in, as neither "
                          "XDG_CACHE_HOME nor HOME is set",
                      "set one of them, or make a cache with `shoal data tokenize` and name it in "
                      "data.train.files and data.valid.files");
    }
    PosixFileSystem files;
    CachedTokens cached = cached_tokens(path, tokenizer(), files, cache_folder_ + "/tokens",
                                        options_.format.documents);
    const TokenFile& file = caches_.emplace_back(std::move(cached.file));
    notes_.push_back(cached.seconds > 0.0
                         ? fmt::format("tokenised {} ({} bytes, {} tokens) into {} in {:.1f} s",
                                       path, file.info()->num_bytes, file.tokens().size(),
                                       file.path(), cached.seconds)
                         : fmt::format("{}: {} tokens, from the cache {}", path,
                                       file.tokens().size(), file.path()));
    made_caches_.push_back(file.path());
    add_cache(file);
  }

  std::vector<std::string> paths_;
  std::vector<std::string> made_caches_;  // in the cache folder
  TextOptions options_;
  std::string cache_folder_;
  std::shared_ptr<const Tokenizer> made_;
  std::deque<TokenFile> caches_;
  std::deque<MappedFile> texts_;
  TokenStream stream_;
  std::vector<std::string> notes_;
};

/// Windows of a stream of tokens.
class TextSet : public SampleSet {
 public:
  TextSet(TextFiles files, int64_t sequence) : files_(std::move(files)), sequence_(sequence) {
    const int64_t num_tokens = files_.stream().size();
    if (num_tokens > sequence) return;
    throw DataError(
        fmt::format("{}: {}, a sample needs {}: data.sequence and one more",
                    join_words(files_.paths()), counted(num_tokens, "token"), sequence + 1),
        "lower data.sequence, or name more text");
  }

  std::optional<TextCounts> text_counts() const override { return files_.counts(); }
  std::vector<std::string> notes() const override { return files_.notes(); }
  std::string fingerprint() const override { return files_.fingerprint(); }
  std::string tokenizer_identity() const override { return files_.tokenizer_identity(); }

 protected:
  int64_t num_tokens() const { return files_.stream().size(); }
  int64_t sequence() const { return sequence_; }
  Sample window(int64_t first) const {
    Sample sample;
    sample.token_S.resize(static_cast<size_t>(sequence_));
    sample.token_label_S.resize(static_cast<size_t>(sequence_));
    files_.stream().copy(first, sequence_, sample.token_S.data());
    std::copy(sample.token_S.begin() + 1, sample.token_S.end(), sample.token_label_S.begin());
    files_.stream().copy(first + sequence_, 1, &sample.token_label_S.back());
    return sample;
  }

 private:
  TextFiles files_;
  int64_t sequence_;
};

class TrainingWindows final : public TextSet {
 public:
  TrainingWindows(TextFiles files, int64_t sequence, uint64_t seed)
      : TextSet(std::move(files), sequence), seed_(seed) {}

  int64_t size() const override { return std::max<int64_t>(1, num_tokens() / sequence() - 1); }
  Sample read(int64_t index, int64_t epoch) const override {
    // The last window and its last label fit behind any of these offsets.
    const int64_t num_offsets = std::min(sequence(), num_tokens() - size() * sequence());
    const ScalarDraws draws({seed_, Purpose::kTextWindows, 0, static_cast<uint64_t>(epoch)});
    return window(draws.integer(0, 0, num_offsets) + index * sequence());
  }

 private:
  uint64_t seed_;
};

class EvaluationWindows final : public TextSet {
 public:
  EvaluationWindows(TextFiles files, int64_t sequence, int64_t stride)
      : TextSet(std::move(files), sequence), stride_(stride) {}

  int64_t size() const override { return (num_tokens() - 1 - sequence()) / stride_ + 1; }
  Sample read(int64_t index, int64_t /*epoch*/) const override {
    Sample sample = window(index * stride_);
    const int64_t num_scored_before = index == 0 ? 0 : sequence() - stride_;
    std::fill_n(sample.token_label_S.begin(), num_scored_before, kNoLabel);
    return sample;
  }

 private:
  int64_t stride_;
};

const Registration<DataSource, TextSource> registered_text_source{
    "text", "text, split into tokens; the label is the next token"};

}  // namespace

std::vector<std::string> TextOptions::paths(Split split) const {
  return paths_in(path, (split == Split::kTrain ? train : valid).files);
}

void TextOptions::validate(Problems& problems) const {
  refuse_repeated(paths(Split::kTrain), paths(Split::kValid), problems);
  if (!Registry<Tokenizer>::create(tokenizer, {.reads_files = false})->ids_are_bytes()) return;
  constexpr const char* kProblem = "bytes are the tokenizer's only ids; use another, such as gpt2";
  if (format.documents != Documents::kNone) problems.add("documents", kProblem);
  if (format.special_tokens == SpecialTokens::kEncode) problems.add("special_tokens", kProblem);
}

DataShape TextSource::shape() const {
  return {.source = "text",
          .sequence = options_.sequence,
          .vocabulary = vocabulary_of(options_.tokenizer),
          .token_labels = options_.sequence};
}

std::shared_ptr<const Tokenizer> TextSource::tokenizer() const { return make_tokenizer(options_); }

std::vector<std::string> TextSource::files(Split split) const {
  const auto tokenizer = Registry<Tokenizer>::create(options_.tokenizer, {.reads_files = false});
  return both(FilesSource::files(split), tokenizer->files());
}

std::unique_ptr<SampleSet> TextSource::open(Split split) const {
  TextFiles files(options_.paths(split), options_, context_.cache_folder);
  if (split == Split::kTrain) {
    return std::make_unique<TrainingWindows>(std::move(files), options_.sequence, context_.seed);
  }
  return std::make_unique<EvaluationWindows>(
      std::move(files), options_.sequence, context_.evaluation_stride.value_or(options_.sequence));
}

}  // namespace shoal
