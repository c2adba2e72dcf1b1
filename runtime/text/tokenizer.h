#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/options/registry.h"

namespace shoal {

/// A text that a tokenizer cannot take. Code that knows which file the text comes from catches it
/// and throws a DataError with the file's name and the offset in the file.
class BadText : public DataError {
 public:
  BadText(size_t offset, const std::string& problem)
      : DataError("byte " + std::to_string(offset) + " of the text: " + problem),
        offset_(offset),
        problem_(problem) {}
  /// The first wrong byte of the text that was given to encode.
  size_t offset() const { return offset_; }
  /// What is wrong there, without the offset.
  const std::string& problem() const { return problem_; }

 private:
  size_t offset_;
  std::string problem_;
};

/// Turns text into token ids and back. Registered under `tokenizer.name`. Free of torch.
class Tokenizer {
 public:
  struct Context {
    bool reads_files = true;  ///< false: only vocabulary() is asked for, as by `check`
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "tokenizer";

  virtual ~Tokenizer() = default;
  /// Ids are below; at most 65,536.
  virtual int64_t vocabulary() const = 0;
  /// The name in recipes and, for tokenizers with files, the SHA-256 of what they hold: two
  /// tokenizers of one identity give equal ids, up to what cache_identity adds.
  virtual std::string identity() const = 0;
  /// identity(), and whatever else the ids depend on, such as the version of a library: the token
  /// caches in the user's cache folder are named after it.
  virtual std::string cache_identity() const { return identity(); }
  /// Appends the ids of a text. Safe from several threads at once. Throws BadText, with `ids` as
  /// they were.
  virtual void encode(std::string_view text, std::vector<int64_t>& ids) const = 0;
  /// How many bytes at the start of `text` can be encoded now: whatever follows `text`, their ids
  /// and those of the rest, each encoded alone, are the ids of the whole. 0: more must be read
  /// first. A long text can so be encoded piece by piece. Never throws BadText: where `text` holds
  /// bytes that encode refuses, the bytes before the result may include them.
  virtual size_t complete_prefix(std::string_view text) const = 0;
  /// The bytes of a token. Throws std::out_of_range for an unknown id.
  virtual std::string_view bytes_of(int64_t id) const = 0;
  /// The id that ends a text, or -1.
  virtual int64_t end_of_text() const { return -1; }
  /// What it reads, also where the context forbids reading.
  virtual std::vector<std::string> files() const { return {}; }
  /// Whether the ids of a text are its bytes: then a text file needs no token cache.
  virtual bool ids_are_bytes() const { return false; }

  std::string decode(const std::vector<int64_t>& ids) const;
};

}  // namespace shoal
